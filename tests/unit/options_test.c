/* The command line: every kind of option in both spellings, defaults of the program, and what is refused, with its
 * words. */
#include <criterion/criterion.h>
#include <string.h>

#include "options.h"

static const pd_program program = {
    .model = "toy", .compiler = "pdc", .pp = 2, .dp = 2, .tp = 1, .steps = 300, .eval_every = 50, .seed = 1234};

#define PARSE(options, problem, ...)                                                                                   \
  pd_options_parse(&program, (int)(sizeof((char *[]){"train", ##__VA_ARGS__}) / sizeof(char *)),                       \
                   (char *[]){"train", ##__VA_ARGS__}, &(options), &(problem))

static void refused(const char *argument, const char *words) {
  pd_options options;
  pd_problem problem;
  char copy[4096];
  snprintf(copy, sizeof copy, "%s", argument);
  cr_assert(!PARSE(options, problem, copy), "`%s` was taken", argument);
  cr_assert(strstr(problem.text, words) != NULL, "`%s`: `%s` does not say `%s`", argument, problem.text, words);
}

Test(options, defaults_are_the_programs) {
  pd_options options;
  pd_problem problem;
  cr_assert(PARSE(options, problem));
  cr_assert_eq(options.steps, 300);
  cr_assert_eq(options.eval_every, 50);
  cr_assert_eq(options.seed, 1234);
  cr_assert(!options.seed_given && !options.quiet && !options.dry_run && !options.help);
  cr_assert_str_eq(options.kernels, "host");
  cr_assert_null(options.data);
  cr_assert_null(options.generate);
}

Test(options, both_spellings) {
  pd_options options;
  pd_problem problem;
  cr_assert(PARSE(options, problem, "--steps=7", "--seed", "9", "--data", "a=b,c=d", "--quiet", "--temperature=0.5",
                  "--kernels", "ref", "--generate=--x=1", "--threads", "3", "--dry-run"));
  cr_assert_eq(options.steps, 7);
  cr_assert_eq(options.seed, 9);
  cr_assert(options.seed_given && options.quiet && options.dry_run);
  cr_assert_str_eq(options.data, "a=b,c=d");
  cr_assert_str_eq(options.kernels, "ref");
  cr_assert_str_eq(options.generate, "--x=1");
  cr_assert_eq(options.threads, 3);
  cr_assert_eq(options.temperature, 0.5);
}

Test(options, the_last_one_wins_and_values_may_be_empty) {
  pd_options options;
  pd_problem problem;
  cr_assert(PARSE(options, problem, "--steps=7", "--steps=0", "--generate="));
  cr_assert_eq(options.steps, 0);
  cr_assert_str_eq(options.generate, "");
}

Test(options, unknown_names_are_refused_with_a_suggestion) {
  refused("--stpes=3", "did you mean `--steps`?");
  refused("--step", "did you mean `--steps`?");
  refused("--eval_every=3", "did you mean `--eval-every`?");
  refused("--temp=1", "did you mean `--temperature`?");
  refused("-steps=3", "did you mean `--steps`?");
  refused("--dryrun", "did you mean `--dry-run`?");
  refused("--zzzzzzzz", "--help lists them");
  refused("---steps=3", "unknown option");
  refused("-", "unknown option");
  refused("--", "unknown option");
  refused("--=3", "unknown option");
}

Test(options, values_are_checked) {
  refused("--steps", "needs a value: --steps=N");
  refused("--steps=", "whole number");
  refused("--steps=3x", "whole number");
  refused("--steps= 3", "whole number");
  refused("--steps=-1", "at least 0");
  refused("--steps=99999999999999999999", "at least 0");
  refused("--tokens=0", "at least 1");
  refused("--threads=5000", "between 1 and 4096");
  refused("--temperature=nan", "between 0 and 1000");
  refused("--temperature=-0.1", "between 0 and 1000");
  refused("--temperature=", "between 0 and 1000");
  refused("--kernels=hos", "must be host|ref");
  refused("--kernels=", "must be host|ref");
  refused("--kernels=host|ref", "must be host|ref");
  refused("--quiet=yes", "takes no value");
  refused("extra", "unexpected argument `extra`");
}

Test(options, replicas_are_asked_for_where_the_program_does_not_say_them) {
  static const pd_degree degrees[] = {{.dp = 1}, {.dp = 4}};
  pd_program open = program;
  open.dp = 0;
  open.degree_count = 2;
  open.degrees = degrees;
  pd_options options;
  pd_problem problem;
  cr_assert(pd_options_parse(&open, 2, (char *[]){"train", "--dp=4"}, &options, &problem));
  cr_assert_eq(options.dp, 4);
  cr_assert(pd_options_parse(&open, 1, (char *[]){"train"}, &options, &problem));
  cr_assert_eq(options.dp, 0);
  refused("--dp=2", "--dp is for programs that were compiled with dp=*");
}

Test(options, a_very_long_name_is_harmless) {
  char argument[3000] = "--";
  memset(argument + 2, 'a', sizeof argument - 3);
  refused(argument, "unknown option");
}

Test(options, help_names_every_option_and_exit_code) {
  char text[8192] = "";
  FILE *to = fmemopen(text, sizeof text, "w");
  pd_options_help(&program, to);
  fclose(to);
  static const char *const words[] = {"4 ranks (pp 2 x dp 2 x tp 1)",
                                      "--steps=N",
                                      "[300]",
                                      "--generate=PROMPT",
                                      "--init=W.safetensors",
                                      "--kernels=host|ref",
                                      "[host]",
                                      "Exit status:",
                                      "  3  ",
                                      "  5  ",
                                      "  8  "};
  for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
    cr_assert(strstr(text, words[i]) != NULL, "--help lacks `%s`", words[i]);
  }
  cr_assert_null(strstr(text, "  1  ")); /* no such exit code */
}
