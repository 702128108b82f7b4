/* Loading the CUDA device. The library stays loaded; it has no state of its own. */
#include "gpu_library.h"

#ifdef PP_CUDA_LIBRARY

#include <dlfcn.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

/* Beside the executable, where it was built; else where the executable says that its libraries are. */
static void *load(void)
{
	char path[PATH_MAX];
	ssize_t length = readlink("/proc/self/exe", path, sizeof path - sizeof PP_CUDA_LIBRARY);
	path[length > 0 ? length : 0] = '\0';
	char *slash = strrchr(path, '/');
	if (slash) {
		memcpy(slash + 1, PP_CUDA_LIBRARY, sizeof PP_CUDA_LIBRARY);
		if (access(path, R_OK) == 0)
			return dlopen(path, RTLD_NOW | RTLD_LOCAL);
	}
	return dlopen(PP_CUDA_LIBRARY, RTLD_NOW | RTLD_LOCAL);
}

const struct pp_device_ops *pp_gpu_library(struct pp_status *status)
{
	void *library = load();
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
