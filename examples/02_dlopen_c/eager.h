/* What a framework's own chain does, in plain C on the host: one rounding after each operator, or one in all. */
#ifndef EXAMPLE_EAGER_H_
#define EXAMPLE_EAGER_H_

#include <stdint.h>

/* x and out are (tokens, heads, dim) of bfloat16, cos and sin (tokens, dim / 2); x1 and x2 are dim / 2 apart.
 * round_each: out = r(r(x1 * c) - r(x2 * s)); else out = r(x1 * c - x2 * s), which is another chain. */
void eager_rope(const uint16_t* x, const uint16_t* cos, const uint16_t* sin, uint16_t* out, int tokens,
                int heads, int dim, int round_each);

#endif
