/* The instructions of executor/cuda/kernels/tensor_core.h on the CPU, for kernels that run by way of emulation.h. What
 * their comments say holds, and more: a copy fills its target with NaN until the wait for it, and a thread that reads
 * rows which are not aligned ends the process. */
#ifndef PP_TENSOR_CORE_EMULATION_H
#define PP_TENSOR_CORE_EMULATION_H

#include <vector>

namespace pp_emulation
{

/* What the lanes of each warp show each other. */
struct tensor_lane {
	uint32_t a[4], b[2];
	const unsigned char *row;
};
inline thread_local tensor_lane tensor_lanes[32][32];

inline tensor_lane *tensor_warp(void)
{
	return tensor_lanes[here->number / 32];
}

inline float half_of(uint32_t pair, uint32_t which)
{
	return __uint_as_float(which ? pair & 0xffff0000u : pair << 16);
}

/* Element (row, k) of a and (k, column) of b, from the lanes that hold them. */
inline float element_a(const tensor_lane *warp, uint32_t row, uint32_t k)
{
	return half_of(warp[row % 8 * 4 + k % 8 / 2].a[row / 8 + k / 8 * 2], k % 2);
}

inline float element_b(const tensor_lane *warp, uint32_t k, uint32_t column)
{
	return half_of(warp[column * 4 + k % 8 / 2].b[k / 8], k % 2);
}

/* A copy into shared memory that nobody has waited for; group 0 is the one that is still open. */
struct copy {
	void *to;
	unsigned char bytes[16];
	uint32_t count, group;
};
struct copies {
	std::vector<copy> open;
	uint32_t groups;
};
inline thread_local copies copies_of_thread[1024];

inline void copy_begin(void *to, const void *from, uint32_t count, bool there)
{
	if ((uintptr_t)to % count || (there && (uintptr_t)from % count)) {
		fprintf(stderr, "emulation: a copy of %u bytes into shared memory is not aligned\n", count);
		abort();
	}
	struct copy copy = {to, {0}, count, 0};
	if (there)
		memcpy(copy.bytes, from, count);
	memset(to, 0xff, count);
	copies_of_thread[here->number].open.push_back(copy);
}

} /* namespace pp_emulation */

inline void pp_tensor_product(float c[4], const uint32_t a[4], const uint32_t b[2])
{
	pp_emulation::tensor_lane *warp = pp_emulation::tensor_warp();
	uint32_t lane = pp_emulation::lane();
	memcpy(warp[lane].a, a, sizeof warp[lane].a);
	memcpy(warp[lane].b, b, sizeof warp[lane].b);
	pp_emulation::meet_warp(0xffffffffu);
	for (uint32_t i = 0; i < 4; i++) {
		uint32_t row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
		for (uint32_t k = 0; k < 16; k++)
			c[i] += pp_emulation::element_a(warp, row, k) * pp_emulation::element_b(warp, k, column);
	}
	pp_emulation::meet_warp(0xffffffffu);
}

/* `down`: the second element of a pair is in the next row, not in the next column. */
inline void pp_matrices_fetch(uint32_t part[4], const void *row, bool down)
{
	pp_emulation::tensor_lane *warp = pp_emulation::tensor_warp();
	uint32_t lane = pp_emulation::lane();
	if ((uintptr_t)row % 16) {
		fprintf(stderr, "emulation: a row of an 8 x 8 matrix is not aligned\n");
		abort();
	}
	warp[lane].row = static_cast<const unsigned char *>(row);
	pp_emulation::meet_warp(0xffffffffu);
	for (uint32_t m = 0; m < 4; m++) {
		uint16_t pair[2];
		for (uint32_t i = 0; i < 2; i++) {
			uint32_t along = lane % 4 * 2 + i, across = lane / 4;
			const unsigned char *from = warp[m * 8 + (down ? along : across)].row;
			memcpy(&pair[i], from + 2 * (down ? across : along), 2);
		}
		part[m] = (uint32_t)pair[1] << 16 | pair[0];
	}
	pp_emulation::meet_warp(0xffffffffu);
}

inline void pp_matrices_load(uint32_t part[4], const void *row)
{
	pp_matrices_fetch(part, row, false);
}

inline void pp_matrices_load_transposed(uint32_t part[4], const void *row)
{
	pp_matrices_fetch(part, row, true);
}

inline void pp_copy_begin(void *to, const void *from, bool there)
{
	pp_emulation::copy_begin(to, from, 16, there);
}

inline void pp_copy_begin_word(void *to, const void *from, bool there)
{
	pp_emulation::copy_begin(to, from, 4, there);
}

inline void pp_copy_group(void)
{
	pp_emulation::copies &mine = pp_emulation::copies_of_thread[pp_emulation::here->number];
	mine.groups++;
	for (pp_emulation::copy &copy : mine.open)
		if (copy.group == 0)
			copy.group = mine.groups;
}

template <int RUNNING> inline void pp_copy_wait(void)
{
	pp_emulation::copies &mine = pp_emulation::copies_of_thread[pp_emulation::here->number];
	std::vector<pp_emulation::copy> open;
	for (const pp_emulation::copy &copy : mine.open) {
		if (copy.group && mine.groups - copy.group >= RUNNING)
			memcpy(copy.to, copy.bytes, copy.count);
		else
			open.push_back(copy);
	}
	mine.open.swap(open);
}

#endif
