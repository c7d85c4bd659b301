/* The reference set: every kernel, written to be read. One thread, loops in index order, sums in double.
 *
 * It is what the other sets are tested against and what they fall back to, so it has to be right rather than fast; it
 * handles every size including 0. The kernels are in ref.inc.h, compiled here once per real type.
 */
#include "kernels/draw.h"
#include "kernels/kernels.h"
#include "kernels/sets.h"

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define R float
#define F(name) name##_f32
#include "kernels/ref.inc.h"
#undef R
#undef F

#define R double
#define F(name) name##_f64
#include "kernels/ref.inc.h"
