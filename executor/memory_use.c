/* Resident memory, from the kernel's own account. */
#include "memory_use.h"

#include <inttypes.h>
#include <stdio.h>

uint64_t pp_resident_bytes(void)
{
	/* The sum over all mappings; the numbers in statm are kept per thread and lag behind. */
	FILE *file = fopen("/proc/self/smaps_rollup", "r");
	char line[160];
	uint64_t kib = 0;
	while (file && fgets(line, sizeof line, file))
		if (sscanf(line, "Rss: %" SCNu64, &kib) == 1)
			break;
	if (file)
		fclose(file);
	return kib * 1024;
}
