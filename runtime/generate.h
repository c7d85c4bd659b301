/* Text from a trained byte-level model. */
#ifndef PD_GENERATE_H
#define PD_GENERATE_H

#include "train.h"

/* Whether the program is a byte-level language model that can continue `prompt`. */
bool pd_generate_possible(const pd_program *program, const char *prompt, pd_problem *problem);
/* Prints the prompt and options.tokens bytes after it, as they come. Collective. */
void pd_generate(pd_run *run);

#endif
