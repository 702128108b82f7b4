/* Loading the CUDA device. The library stays loaded; it has no state of its own. */
#include "gpu_library.h"

#ifdef PP_CUDA_LIBRARY

#include <dlfcn.h>

const struct pp_device_ops *pp_gpu_library(struct pp_status *status)
{
	void *library = dlopen(PP_CUDA_LIBRARY, RTLD_NOW | RTLD_LOCAL);
	const struct pp_device_ops *device = library ? dlsym(library, "pp_device_cuda") : NULL;
	if (!device) {
		const char *why = dlerror();
		pp_fail(status, PP_EXIT_ENVIRONMENT, "cannot load the CUDA device: %s (docs/cuda.md says what it needs)",
		        why ? why : "it is not in " PP_CUDA_LIBRARY);
	}
	return device;
}

#else

const struct pp_device_ops *pp_gpu_library(struct pp_status *status)
{
	pp_fail(status, PP_EXIT_ENVIRONMENT, "this piperun was built without CUDA; build with -DPP_CUDA=ON (docs/cuda.md)");
	return NULL;
}

#endif
