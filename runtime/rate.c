/* Learning-rate schedules: warm-up, then constant, cosine, linear or warm-up-stable-decay. */
#include "rate.h"

#include <math.h>

/* A straight line that meets both ends exactly. */
static double line(double from, double to, double t) {
  return from * (1 - t) + to * t;
}

/* Where `u` lies between `from` and `to`, from 0 to 1; 1 when there is no way to go. */
static double way(double u, double from, double to) {
  if (u >= to) return 1;
  return u <= from ? 0 : (u - from) / (to - from);
}

double pd_rate_at(const pd_program *program, int64_t u) {
  const double at = (double)u, peak = program->peak, floor_rate = program->floor, warmup = program->warmup;
  if (at < warmup) return peak * fmin(1, (at + 1) / warmup);
  switch (program->rate) {
  case PD_RATE_COSINE: {
    const double t = way(at, warmup, program->end);
    return floor_rate + (peak - floor_rate) * 0.5 * (1 + cos(3.14159265358979323846 * t));
  }
  case PD_RATE_LINEAR:
    return line(peak, floor_rate, way(at, warmup, program->end));
  case PD_RATE_WSD:
    return line(peak, floor_rate, way(at, fmax(warmup, program->decay_from), program->end));
  case PD_RATE_CONSTANT:
    break;
  }
  return peak;
}

const char *pd_rate_name(pd_rate rate) {
  switch (rate) {
  case PD_RATE_COSINE:
    return "cosine";
  case PD_RATE_LINEAR:
    return "linear";
  case PD_RATE_WSD:
    return "wsd";
  case PD_RATE_CONSTANT:
    break;
  }
  return "constant";
}
