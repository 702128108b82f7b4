/* The devices that the fake says it has, versions, and errors by name. */
#include "capture.h"
#include "host.h"
#include "runtime.h"
#include "stream.h"

#include <stdio.h>
#include <string.h>

enum { DEVICES_MOST = 64, FIRST_BUS = 1 };

static bool peers[DEVICES_MOST][DEVICES_MOST]; /* [device][other] */

static int device_count(void)
{
	int devices = pp_fake_settings()->devices;
	return devices > DEVICES_MOST ? DEVICES_MOST : devices;
}

bool pp_fake_peers(int device, int other)
{
	return peers[device][other];
}

static bool exists(int device)
{
	return device >= 0 && device < device_count();
}

static int bus_of(int device)
{
	return FIRST_BUS + (int)pp_fake_settings()->first + device;
}

cudaError_t cudaGetDeviceCount(int *count)
{
	struct pp_fake_host *host = pp_fake_enter("cudaGetDeviceCount");
	if (device_count() < -1)
		return pp_fake_leave(host, (cudaError_t)-device_count());
	if (device_count() < 0)
		return pp_fake_leave(host, cudaErrorInsufficientDriver);
	if (device_count() == 0)
		return pp_fake_leave(host, cudaErrorNoDevice);
	*count = device_count();
	return pp_fake_leave(host, cudaSuccess);
}

cudaError_t cudaSetDevice(int device)
{
	struct pp_fake_host *host = pp_fake_enter("cudaSetDevice");
	if (!exists(device))
		return pp_fake_leave(host, cudaErrorInvalidDevice);
	host->device = device;
	return pp_fake_leave(host, cudaSuccess);
}

cudaError_t cudaGetDevice(int *device)
{
	struct pp_fake_host *host = pp_fake_enter("cudaGetDevice");
	*device = host->device;
	return pp_fake_leave(host, cudaSuccess);
}

cudaError_t cudaSetDeviceFlags(unsigned int flags)
{
	(void)flags;
	return pp_fake_leave(pp_fake_enter("cudaSetDeviceFlags"), cudaSuccess);
}

cudaError_t cudaInitDevice(int device, unsigned int device_flags, unsigned int flags)
{
	(void)device_flags;
	(void)flags;
	return cudaSetDevice(device);
}

/* Kernels are taken to be built for 8.0, 9.0 and 10.0: code for one runs on those of its major version from its minor
 * version on (CUDA C++ Programming Guide, "Binary compatibility"). */
static bool has_code(void)
{
	int major = pp_fake_settings()->capability / 10;
	return major >= 8 && major <= 10;
}

cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *attributes, const void *kernel)
{
	struct pp_fake_host *host = pp_fake_enter("cudaFuncGetAttributes");
	if (!kernel || !has_code())
		return pp_fake_leave(host, kernel ? cudaErrorNoKernelImageForDevice : cudaErrorInvalidDeviceFunction);
	memset(attributes, 0, sizeof *attributes);
	attributes->maxThreadsPerBlock = 1024;
	return pp_fake_leave(host, cudaSuccess);
}

/* Limits of compute capability 9.0. */
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int device)
{
	struct pp_fake_host *host = pp_fake_enter("cudaGetDeviceProperties");
	if (!exists(device))
		return pp_fake_leave(host, cudaErrorInvalidDevice);
	memset(properties, 0, sizeof *properties);
	snprintf(properties->name, sizeof properties->name, "fake device %d", device);
	properties->uuid.bytes[0] = (char)((int)pp_fake_settings()->first + device + 1);
	properties->totalGlobalMem = pp_fake_settings()->memory;
	properties->sharedMemPerBlock = 48 * 1024;
	properties->sharedMemPerBlockOptin = (size_t)pp_fake_settings()->shared - 1024;
	properties->sharedMemPerMultiprocessor = (size_t)pp_fake_settings()->shared;
	properties->regsPerBlock = properties->regsPerMultiprocessor = 65536;
	properties->warpSize = 32;
	properties->maxThreadsPerBlock = 1024;
	properties->maxThreadsPerMultiProcessor = 2048;
	properties->maxThreadsDim[0] = properties->maxThreadsDim[1] = 1024;
	properties->maxThreadsDim[2] = 64;
	properties->maxGridSize[0] = 0x7fffffff;
	properties->maxGridSize[1] = properties->maxGridSize[2] = 65535;
	properties->major = pp_fake_settings()->capability / 10;
	properties->minor = pp_fake_settings()->capability % 10;
	properties->multiProcessorCount = 4;
	properties->pciBusID = bus_of(device);
	properties->concurrentKernels = 1;
	properties->asyncEngineCount = 3;
	properties->unifiedAddressing = properties->canMapHostMemory = properties->hostRegisterSupported = 1;
	properties->l2CacheSize = 50 << 20;
	properties->streamPrioritiesSupported = 1;
	return pp_fake_leave(host, cudaSuccess);
}

static bool attribute_of(enum cudaDeviceAttr attribute, int device, int *value)
{
	switch ((int)attribute) {
	case cudaDevAttrMaxThreadsPerBlock:
		*value = 1024;
		return true;
	case cudaDevAttrWarpSize:
		*value = 32;
		return true;
	case cudaDevAttrMultiProcessorCount:
		*value = 4;
		return true;
	case cudaDevAttrComputeCapabilityMajor:
		*value = pp_fake_settings()->capability / 10;
		return true;
	case cudaDevAttrComputeCapabilityMinor:
		*value = pp_fake_settings()->capability % 10;
		return true;
	case cudaDevAttrPciDomainId:
	case cudaDevAttrPciDeviceId:
		*value = 0;
		return true;
	case cudaDevAttrMaxSharedMemoryPerBlock:
		*value = 48 * 1024;
		return true;
	case cudaDevAttrMaxSharedMemoryPerBlockOptin:
		*value = pp_fake_settings()->shared - 1024;
		return true;
	case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
		*value = pp_fake_settings()->shared;
		return true;
	case cudaDevAttrL2CacheSize:
		*value = 50 << 20;
		return true;
	case cudaDevAttrPciBusId:
		*value = bus_of(device);
		return true;
	case cudaDevAttrConcurrentKernels:
	case cudaDevAttrUnifiedAddressing:
	case cudaDevAttrCanMapHostMemory:
		*value = 1;
		return true;
	}
	return false;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device)
{
	struct pp_fake_host *host = pp_fake_enter("cudaDeviceGetAttribute");
	if (!exists(device))
		return pp_fake_leave(host, cudaErrorInvalidDevice);
	return pp_fake_leave(host, attribute_of(attribute, device, value) ? cudaSuccess : cudaErrorNotSupported);
}

cudaError_t cudaDeviceGetPCIBusId(char *text, int size, int device)
{
	struct pp_fake_host *host = pp_fake_enter("cudaDeviceGetPCIBusId");
	if (!exists(device))
		return pp_fake_leave(host, cudaErrorInvalidDevice);
	snprintf(text, (size_t)size, "0000:%02X:00.0", (unsigned)bus_of(device));
	return pp_fake_leave(host, cudaSuccess);
}

cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int other)
{
	struct pp_fake_host *host = pp_fake_enter("cudaDeviceCanAccessPeer");
	if (!exists(device) || !exists(other))
		return pp_fake_leave(host, cudaErrorInvalidDevice);
	*can = device != other;
	return pp_fake_leave(host, cudaSuccess);
}

cudaError_t cudaDeviceEnablePeerAccess(int other, unsigned int flags)
{
	(void)flags;
	struct pp_fake_host *host = pp_fake_enter("cudaDeviceEnablePeerAccess");
	if (!exists(other) || other == host->device)
		return pp_fake_leave(host, cudaErrorInvalidDevice);
	if (peers[host->device][other])
		return pp_fake_leave(host, cudaErrorPeerAccessAlreadyEnabled);
	peers[host->device][other] = true;
	return pp_fake_leave(host, cudaSuccess);
}

cudaError_t cudaDeviceReset(void)
{
	struct pp_fake_host *host = pp_fake_enter("cudaDeviceReset");
	pp_fake_streams_await(host, host->device, "cudaDeviceReset");
	return pp_fake_leave(host, cudaSuccess);
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
	*version = CUDART_VERSION;
	return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *version)
{
	*version = pp_fake_settings()->devices < 0 ? 0 : pp_fake_settings()->driver;
	return cudaSuccess;
}

cudaError_t cudaGetLastError(void)
{
	struct pp_fake_host *host = pp_fake_enter("cudaGetLastError");
	cudaError_t error = host->last_error;
	host->last_error = cudaSuccess;
	pp_fake_unlock();
	return error;
}

cudaError_t cudaPeekAtLastError(void)
{
	struct pp_fake_host *host = pp_fake_enter("cudaPeekAtLastError");
	cudaError_t error = host->last_error;
	pp_fake_unlock();
	return error;
}

static const struct {
	cudaError_t error;
	const char *name, *text;
} errors[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration", "invalid configuration argument"},
    {cudaErrorInsufficientDriver, "cudaErrorInsufficientDriver",
     "CUDA driver version is insufficient for CUDA runtime version"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorIllegalState, "cudaErrorIllegalState", "the operation cannot be performed in the present state"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorPeerAccessAlreadyEnabled, "cudaErrorPeerAccessAlreadyEnabled", "peer access is already enabled"},
    {cudaErrorHostMemoryAlreadyRegistered, "cudaErrorHostMemoryAlreadyRegistered",
     "part or all of the requested memory range is already mapped"},
    {cudaErrorNotSupported, "cudaErrorNotSupported", "operation not supported"},
    {cudaErrorSystemNotReady, "cudaErrorSystemNotReady", "system not yet initialized"},
    {cudaErrorNoKernelImageForDevice, "cudaErrorNoKernelImageForDevice",
     "no kernel image is available for execution on the device"},
    {cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported",
     "operation not permitted when stream is capturing"},
    {cudaErrorStreamCaptureInvalidated, "cudaErrorStreamCaptureInvalidated",
     "operation failed due to a previous error during capture"},
    {cudaErrorStreamCaptureMerge, "cudaErrorStreamCaptureMerge",
     "operation would result in a merge of separate capture sequences"},
    {cudaErrorStreamCaptureUnmatched, "cudaErrorStreamCaptureUnmatched",
     "capture was not ended in the same stream as it began"},
    {cudaErrorStreamCaptureUnjoined, "cudaErrorStreamCaptureUnjoined", "capturing stream has unjoined work"},
    {cudaErrorStreamCaptureIsolation, "cudaErrorStreamCaptureIsolation",
     "dependency created on uncaptured work in another stream"},
    {cudaErrorStreamCaptureWrongThread, "cudaErrorStreamCaptureWrongThread",
     "attempt to terminate a thread-local capture sequence from another thread"},
    {cudaErrorCapturedEvent, "cudaErrorCapturedEvent",
     "operation not permitted on an event last recorded in a capturing stream"},
};

const char *cudaGetErrorString(cudaError_t error)
{
	for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++)
		if (errors[i].error == error)
			return errors[i].text;
	return "unrecognized error code";
}

const char *cudaGetErrorName(cudaError_t error)
{
	for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++)
		if (errors[i].error == error)
			return errors[i].name;
	return "unrecognized error code";
}
