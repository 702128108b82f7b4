/* Softmax cross-entropy with its gradient, in place if wanted. */
#include "kernel_math.h"

#include <assert.h>

void pp_cpu_cross_entropy(size_t tokens, size_t vocab, size_t columns, bool mean, const pp_real *logits,
                          const int32_t *labels, pp_real *dlogits, double loss[2])
{
	size_t count = 0;
	for (size_t t = 0; t < tokens; t++)
		count += labels[t] >= 0;
	double total = 0;
	pp_real weight = mean && count ? 1 / (pp_real)count : 1;
	for (size_t t = 0; t < tokens; t++) {
		const pp_real *row = logits + t * columns;
		pp_real *out = dlogits + t * columns;
		if (labels[t] < 0) {
			memset(out, 0, columns * sizeof *out);
			continue;
		}
		size_t label = (size_t)labels[t];
		assert(label < vocab);
		pp_real best = row_largest(vocab, row, row[0]), own = row[label];
		pp_real sum = row_exp(vocab, row, best, out);
		total += (double)(real_log(sum) + (best - own));
		row_scale(vocab, weight / sum, out);
		out[label] -= weight;
		memset(out + vocab, 0, (columns - vocab) * sizeof *out);
	}
	loss[0] = total;
	loss[1] = (double)count;
}
