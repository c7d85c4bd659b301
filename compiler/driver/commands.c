/* The table of commands, and `pdc help`. */
#include "driver/commands.h"

#include <stdio.h>
#include <string.h>

#include "driver/driver.h"

static int command_help(Arena *arena, int argc, char **argv);

static const Command commands[] = {
    {"fmt", fmt_command, "fmt [-w | --check] FILE.pd ...",
     "print in canonical form, rewrite (-w), or list what differs (--check)", false},
    {"lsp", lsp_command, "lsp [-I DIR]", "language server on standard input and output", false},
    {"schedule", command_schedule, "schedule --kind=KIND ...", "generate a pipeline schedule without a model; draw one",
     true},
    {"certify", command_certify, "certify FILE", "check a plan or a schedule, in PyTorch's form too", true},
    {"diff", command_diff, "diff A B", "what differs between two plans or schedules", true},
    {"nvrtc", command_nvrtc, "nvrtc -o FILE.cubin FILE.cu ...",
     "compile CUDA kernels for one architecture, by NVIDIA's libnvrtc", false},
    {"help", command_help, "help [COMMAND]", "this text, or that of a command", false},
};
enum { COMMAND_COUNT = sizeof commands / sizeof *commands };

const Command *command_find(const char *name) {
  for (int i = 0; i < COMMAND_COUNT; i++)
    if (strcmp(commands[i].name, name) == 0) return &commands[i];
  return NULL;
}

const char *commands_nearest(const char *word) {
  const char *best = edit_distance(word, "check", 2) <= 2 ? "check" : NULL;
  for (int i = 0; i < COMMAND_COUNT && !best; i++)
    if (strlen(commands[i].name) > 3 && edit_distance(word, commands[i].name, 2) <= 2) best = commands[i].name;
  return best;
}

void commands_help(void) {
  for (int i = 0; i < COMMAND_COUNT; i++) printf("       pdc %-30s %s\n", commands[i].usage, commands[i].help);
}

static int command_help(Arena *arena, int argc, char **argv) {
  const Command *command = argc > 1 ? command_find(argv[1]) : NULL;
  if (argc > 1 && !command) {
    fprintf(stderr, "pdc: there is no command `%s` (pdc help lists them)\n", argv[1]);
    return EXIT_USAGE;
  }
  if (!command || command->run == command_help) {
    options_help();
    return EXIT_OK;
  }
  if (!command->has_help) {
    printf("usage: pdc %s\n%s\n", command->usage, command->help);
    return EXIT_OK;
  }
  char *words[] = {argv[1], "--help"};
  return command->run(arena, 2, words);
}
