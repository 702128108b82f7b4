/* What the host sees of the GPU's memory. Copies go through pinned memory, in the order of the compute stream. */
#include "device_parts.h"

#include "executor/device_share.h"

#include <assert.h>
#include <string.h>

/* ---- read and write --------------------------------------------------------------------------- */

static unsigned char *part_of(const struct pp_device *device, uint32_t slot, uint64_t offset)
{
	return (slot == PP_NULL ? device->memory.guarded : pp_cuda_slot(device, slot)) + offset;
}

bool pp_cuda_read(struct pp_device *device, uint32_t slot, uint64_t offset, uint64_t bytes, void *to,
                  struct pp_status *status)
{
	unsigned char *bounce = device->host.bounce;
	pp_cuda_flush(device);
	for (uint64_t at = 0; at < bytes; at += PP_CUDA_BOUNCE) {
		size_t part = bytes - at < PP_CUDA_BOUNCE ? (size_t)(bytes - at) : PP_CUDA_BOUNCE;
		if (!pp_cuda_ok(cudaMemcpyAsync(bounce, part_of(device, slot, offset + at), part, cudaMemcpyDeviceToHost,
		                                device->cuda.compute),
		                "reading memory of the GPU", status) ||
		    !pp_cuda_wait(device->cuda.compute, "reading memory of the GPU", status))
			return false;
		memcpy((unsigned char *)to + at, bounce, part);
	}
	return true;
}

bool pp_cuda_write_to(struct pp_device *device, void *to, uint64_t bytes, const void *from, struct pp_status *status)
{
	unsigned char *bounce = device->host.bounce;
	pp_cuda_flush(device);
	for (uint64_t at = 0; at < bytes; at += PP_CUDA_BOUNCE) {
		size_t part = bytes - at < PP_CUDA_BOUNCE ? (size_t)(bytes - at) : PP_CUDA_BOUNCE;
		memcpy(bounce, (const unsigned char *)from + at, part);
		if (!pp_cuda_ok(
		        cudaMemcpyAsync((unsigned char *)to + at, bounce, part, cudaMemcpyHostToDevice, device->cuda.compute),
		        "writing memory of the GPU", status) ||
		    !pp_cuda_wait(device->cuda.compute, "writing memory of the GPU", status))
			return false;
	}
	return true;
}

bool pp_cuda_write(struct pp_device *device, uint32_t slot, uint64_t offset, uint64_t bytes, const void *from,
                   struct pp_status *status)
{
	return pp_cuda_write_to(device, part_of(device, slot, offset), bytes, from, status);
}

/* ---- loads ------------------------------------------------------------------------------------ */

/* Each load of a step has a place of its own, which is free again once the step has settled. */
void *pp_cuda_load_begin(struct pp_device *device, const struct pp_instr *instr)
{
	struct pp_cuda_host *host = &device->host;
	uint64_t bytes = (pp_load_bytes(device->program, instr) + PP_ALIGN - 1) / PP_ALIGN * PP_ALIGN;
	assert(bytes <= host->loads_bytes - host->loads_used);
	host->load = host->loads + host->loads_used;
	host->loads_used += bytes;
	return host->load;
}

void pp_cuda_load_end(struct pp_device *device, const struct pp_instr *instr)
{
	if (pp_cuda_replays(device)) /* the step's graph has the copy */
		return;
	device->open = true;
	pp_cuda_note(device,
	             cudaMemcpyAsync(pp_cuda_slot(device, instr->a[0]), device->host.load,
	                             pp_load_bytes(device->program, instr), cudaMemcpyHostToDevice, device->cuda.compute),
	             "loading data");
}

/* ---- losses ----------------------------------------------------------------------------------- */

void pp_cuda_keep(struct pp_device *device, uint32_t slot)
{
	pp_cuda_flush(device);
	device->open = true;
	pp_cuda_note(device,
	             cudaMemcpyAsync(device->host.kept, pp_cuda_slot(device, slot), device->rank->slots[slot].bytes,
	                             cudaMemcpyDeviceToHost, device->cuda.compute),
	             "keeping losses");
}

const void *pp_cuda_kept(struct pp_device *device)
{
	return device->host.kept;
}
