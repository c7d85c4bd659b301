/* Linked into a compiled program with -Wl,--wrap=pd_main: every piece of a loop takes a fixed time instead of the one
 * that it needs. A rank sleeps through the rest of it, so more ranks than cores run as if each had its own, and a step
 * takes what the order of the list makes of it. Functions still compute, so results stay right.
 * Environment: PD_DELAY_F, PD_DELAY_I, PD_DELAY_W, microseconds of one piece. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "program.h"

enum { MOST_SEGMENTS = 4 };

static pd_segment_info segments[MOST_SEGMENTS];
static const pd_segment_info *real_segments;
static long delays[3];

static void delayed(pd_segment_function *function, const pd_frame *frame, long microseconds) {
  struct timespec until;
  clock_gettime(CLOCK_MONOTONIC, &until);
  if (function != NULL) function(frame);
  until.tv_nsec += microseconds * 1000;
  until.tv_sec += until.tv_nsec / 1000000000;
  until.tv_nsec %= 1000000000;
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) != 0) {
  }
}

#define DELAYED(s)                                                                                                     \
  static void forward_##s(const pd_frame *frame) {                                                                     \
    delayed(real_segments[s].forward, frame, delays[0]);                                                               \
  }                                                                                                                    \
  static void input_grad_##s(const pd_frame *frame) {                                                                  \
    delayed(real_segments[s].input_grad, frame, delays[1]);                                                            \
  }                                                                                                                    \
  static void weight_grad_##s(const pd_frame *frame) {                                                                 \
    delayed(real_segments[s].weight_grad, frame, delays[2]);                                                           \
  }
DELAYED(0)
DELAYED(1)
DELAYED(2)
DELAYED(3)

static pd_segment_function *const all[MOST_SEGMENTS][3] = {{forward_0, input_grad_0, weight_grad_0},
                                                           {forward_1, input_grad_1, weight_grad_1},
                                                           {forward_2, input_grad_2, weight_grad_2},
                                                           {forward_3, input_grad_3, weight_grad_3}};

int __real_pd_main(const pd_program *program, int argc, char **argv);
int __wrap_pd_main(const pd_program *program, int argc, char **argv);

int __wrap_pd_main(const pd_program *program, int argc, char **argv) {
  static const char *const names[3] = {"PD_DELAY_F", "PD_DELAY_I", "PD_DELAY_W"};
  static pd_program slow;
  slow = *program;
  if (program->segment_count > MOST_SEGMENTS) {
    fprintf(stderr, "delays: %d segments; there is room for %d\n", program->segment_count, MOST_SEGMENTS);
    return 2;
  }
  for (int k = 0; k < 3; k++) delays[k] = getenv(names[k]) ? atol(getenv(names[k])) : 0;
  memcpy(segments, program->segments, sizeof segments[0] * (size_t)program->segment_count);
  real_segments = program->segments;
  slow.segments = segments;
  for (int s = 0; s < program->segment_count; s++) {
    if (segments[s].trips == 1) continue;
    segments[s].forward = all[s][0];
    segments[s].input_grad = all[s][1];
    segments[s].weight_grad = all[s][2];
  }
  return __real_pd_main(&slow, argc, argv);
}
