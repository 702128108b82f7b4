/* Finding GPUs. The binary starts on machines without a driver: the runtime library loads without one, and its calls
 * say so. */
#include "gpu.h"

#include "kernels/kernels_cuda.h"

#include <cuda_runtime_api.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* What helps against an error of the first call, which comes from the machine; "": nobody knows. */
static const char *advice(cudaError_t error)
{
	static const struct {
		cudaError_t error;
		const char *text;
	} known[] = {
	    {cudaErrorSystemNotReady,
	     ": GPUs that NVSwitches connect want the Fabric Manager of the driver's version to run "
	     "(systemctl status nvidia-fabricmanager)"},
	    {cudaErrorSystemDriverMismatch,
	     ": the driver's library and its kernel module are of different versions, as after "
	     "an update without a restart"},
	    {cudaErrorCompatNotSupportedOnDevice, ": take the folder `compat` of a CUDA toolkit out of LD_LIBRARY_PATH"},
	    {cudaErrorUnknown, ": does nvidia-smi work, and is there /dev/nvidia-uvm?"},
	};
	for (size_t i = 0; i < sizeof known / sizeof *known; i++)
		if (known[i].error == error)
			return known[i].text;
	return "";
}

int pp_gpu_count(struct pp_status *status)
{
	int count = 0, driver = 0, runtime = 0;
	cudaError_t error = cudaGetDeviceCount(&count); /* on an error the number is not written */
	if (error == cudaSuccess && count > 0)
		return count;
	cudaDriverGetVersion(&driver);
	cudaRuntimeGetVersion(&runtime);
	int major = runtime / 1000, minor = runtime % 1000 / 10;
	if (error == cudaErrorInsufficientDriver && driver == 0)
		pp_fail(status, PP_EXIT_ENVIRONMENT,
		        "no CUDA driver on this machine: install NVIDIA's driver for CUDA %d.%d or later, or run with "
		        "--device=cpu what is built with `dtype = fp32`",
		        major, minor);
	else if (error == cudaErrorInsufficientDriver)
		pp_fail(
		    status, PP_EXIT_ENVIRONMENT,
		    "the CUDA driver of this machine is for CUDA %d.%d, this piperun needs %d.%d or later: update the driver, "
		    "or run with --device=cpu what is built with `dtype = fp32`",
		    driver / 1000, driver % 1000 / 10, major, minor);
	else if (error == cudaErrorStubLibrary)
		pp_fail(status, PP_EXIT_ENVIRONMENT,
		        "the CUDA driver that was loaded is the one to link with only: take the folder `stubs` out of "
		        "LD_LIBRARY_PATH");
	else if (error == cudaErrorNoDevice || error == cudaSuccess)
		pp_fail(status, PP_EXIT_ENVIRONMENT,
		        "no GPU on this machine%s; run with --device=cpu what is built with `dtype = fp32`",
		        getenv("CUDA_VISIBLE_DEVICES") ? " among those that CUDA_VISIBLE_DEVICES names" : "");
	else
		pp_fail(status, PP_EXIT_ENVIRONMENT, "cannot use the GPUs of this machine: %s (CUDA error %d)%s",
		        cudaGetErrorString(error), (int)error, advice(error));
	return 0;
}

bool pp_gpu_is_here(void)
{
	int status = 1;
	pid_t child = fork();
	if (child == 0) {
		struct pp_status why;
		_exit(pp_gpu_count(&why) > 0 ? 0 : 1);
	}
	while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR)
		continue;
	return child > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* The `wanted`-th number of a list, over again from its end on. False: it is no list of numbers from 0 to count - 1. */
static bool pick(const char *list, int count, uint32_t wanted, int *ordinal)
{
	enum { MOST = 1024 };
	int items[MOST];
	uint32_t length = 0;
	for (const char *at = list;; at++) {
		char *end;
		long value = *at >= '0' && *at <= '9' ? strtol(at, &end, 10) : -1;
		if (value < 0 || value >= count || length == MOST)
			return false;
		items[length++] = (int)value;
		at = end;
		if (*at == '\0')
			break;
		if (*at != ',')
			return false;
	}
	*ordinal = items[wanted % length];
	return true;
}

bool pp_gpu_choose(const char *list, uint32_t local, int *ordinal, struct pp_status *status)
{
	int count = pp_gpu_count(status);
	if (count == 0)
		return false;
	if (!list) {
		*ordinal = (int)(local % (uint32_t)count);
		return true;
	}
	return pick(list, count, local, ordinal) ||
	       pp_fail(status, PP_EXIT_USAGE, "--gpus=%s: want numbers of GPUs from 0 to %d, as 0,2", list, count - 1);
}

static bool ask(int ordinal, struct cudaDeviceProp *properties, struct pp_status *status)
{
	cudaError_t error = cudaGetDeviceProperties(properties, ordinal);
	return error == cudaSuccess ||
	       pp_fail(status, PP_EXIT_ENVIRONMENT, "GPU %d: asking what it is failed: %s (CUDA error %d)", ordinal,
	               cudaGetErrorString(error), (int)error);
}

bool pp_gpu_fits(int ordinal, struct pp_status *status)
{
	struct cudaDeviceProp properties;
	cudaError_t error = pp_cuda_has_code();
	if (error == cudaSuccess)
		return true;
	(void)cudaGetLastError(); /* it was this one */
	if (error != cudaErrorNoKernelImageForDevice && error != cudaErrorInvalidDeviceFunction)
		return pp_fail(status, PP_EXIT_ENVIRONMENT, "GPU %d: loading kernels failed: %s (CUDA error %d)", ordinal,
		               cudaGetErrorString(error), (int)error);
	return ask(ordinal, &properties, status) &&
	       pp_fail(status, PP_EXIT_ENVIRONMENT,
	               "GPU %d (%s) has compute capability %d.%d, the kernels of this piperun were built for " PP_CUDA_GPUS
	               ": build with -DCMAKE_CUDA_ARCHITECTURES=%d%d-real, or choose other GPUs with --gpus",
	               ordinal, properties.name, properties.major, properties.minor, properties.major, properties.minor);
}

bool pp_gpu_identify(const char *list, uint32_t local, uint8_t uuid[PP_GPU_UUID], struct pp_status *status)
{
	struct cudaDeviceProp properties;
	int ordinal;
	_Static_assert(sizeof properties.uuid == PP_GPU_UUID, "a UUID");
	if (!pp_gpu_choose(list, local, &ordinal, status))
		return false;
	if (!ask(ordinal, &properties, status))
		return false;
	memcpy(uuid, &properties.uuid, PP_GPU_UUID);
	return true;
}
