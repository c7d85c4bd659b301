/* Changes of programs that leave most of them programs: words for words, numbers for numbers, lines copied, calls
 * wrapped around names. Bytes changed at random seldom get past the parser; these reach the passes behind it. Every
 * fourth change is left to libFuzzer. */
#include <ctype.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t most);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed);

enum { MOST_TOKENS = 4096, ROOM = 8192 };

typedef struct Token {
  size_t begin, end;
} Token;

static unsigned draw(unsigned *state, unsigned below) {
  *state = *state * 1664525u + 1013904223u;
  return (*state >> 8) % below;
}

static int word(int c) {
  return isalnum(c) || c == '_' || c == '.';
}

/* Words and numbers of the text, or lines. */
static unsigned find_tokens(const uint8_t *text, size_t size, char kind, Token *tokens) {
  unsigned count = 0;
  for (size_t at = 0; at < size && count < MOST_TOKENS;) {
    size_t begin = at;
    if (kind == 'l') {
      while (at < size && text[at] != '\n') at++;
      if (at < size) at++;
    } else if (word(text[at])) {
      while (at < size && word(text[at])) at++;
      if ((isdigit(text[begin]) != 0) != (kind == 'n')) continue;
    } else {
      at++;
      continue;
    }
    tokens[count++] = (Token){begin, at};
  }
  return count;
}

/* text[begin, end) becomes `with`. */
static size_t replace(uint8_t *text, size_t size, size_t most, Token token, const char *with, size_t length) {
  size_t rest = size - token.end, grown = token.begin + length + rest;
  if (grown > most || length > ROOM) return size;
  memmove(text + token.begin + length, text + token.end, rest);
  memcpy(text + token.begin, with, length);
  return grown;
}

static size_t change(uint8_t *text, size_t size, size_t most, unsigned *state) {
  static const char *const numbers[] = {"0",
                                        "1",
                                        "2",
                                        "3",
                                        "4",
                                        "5",
                                        "7",
                                        "8",
                                        "16",
                                        "1000",
                                        "65537",
                                        "1M",
                                        "0.5",
                                        "-1",
                                        "1e308",
                                        "2147483648",
                                        "9223372036854775807",
                                        "4611686018427387904",
                                        "1e-9",
                                        "12",
                                        "parallel.tp"};
  static const char *const wraps[] = {"relu(%.*s)",
                                      "transpose(%.*s)",
                                      "softmax(%.*s)",
                                      "mean(%.*s)",
                                      "layernorm(%.*s)",
                                      "gelu(%.*s)",
                                      "exp(%.*s)",
                                      "sum(%.*s, 0)",
                                      "-%.*s",
                                      "(%.*s @ x)",
                                      "dropout(%.*s, 0.1)",
                                      "rope(%.*s)",
                                      "reshape(%.*s, 2, 4)",
                                      "slice(%.*s, axis=-1, begin=0, end=2)",
                                      "concat(%.*s, x, axis=-1)",
                                      "sdpa(%.*s, x, x)",
                                      "(%.*s + 1)",
                                      "(%.*s / x)",
                                      "mse(%.*s, y)",
                                      "gather(%.*s, tokens)"};
  static const char *const lines[] = {"parallel < pp=2; tp=2; >\n",
                                      "schedule < kind=zb-h1; microbatch=2; >\n",
                                      "schedule < kind=interleaved; chunks=2; >\n",
                                      "  repeat 3 {\n",
                                      "  }\n",
                                      "  repeat i = 0 .. 2 { x = x * i; }\n",
                                      "precision < compute=f64; >\n",
                                      "shard < n=tp; >\n",
                                      "schedule < recompute=full; >\n",
                                      "  metric a = mean(x);\n",
                                      "  frozen param z: [n] = 1;\n"};
  Token tokens[MOST_TOKENS];
  unsigned kind = draw(state, 6);
  unsigned count = find_tokens(text, size, kind == 0 ? 'n' : kind < 3 ? 'w' : 'l', tokens);
  if (!count) return size;
  Token one = tokens[draw(state, count)], other = tokens[draw(state, count)];
  char piece[ROOM];
  size_t length = other.end - other.begin;
  if (length >= sizeof piece) return size;
  memcpy(piece, text + other.begin, length);
  switch (kind) {
  case 0: {
    const char *number = numbers[draw(state, sizeof numbers / sizeof *numbers)];
    return replace(text, size, most, one, number, strlen(number));
  }
  case 1:
    return replace(text, size, most, one, piece, length); /* a word for another */
  case 2: {
    int n = snprintf(piece, sizeof piece, wraps[draw(state, sizeof wraps / sizeof *wraps)], (int)(one.end - one.begin),
                     (const char *)text + one.begin);
    return n > 0 && (size_t)n < sizeof piece ? replace(text, size, most, one, piece, (size_t)n) : size;
  }
  case 3:
    return replace(text, size, most, (Token){one.begin, one.begin}, piece, length); /* a line once more */
  case 4:
    return replace(text, size, most, one, "", 0);
  default: {
    const char *line = lines[draw(state, sizeof lines / sizeof *lines)];
    return replace(text, size, most, (Token){one.begin, one.begin}, line, strlen(line));
  }
  }
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed) {
  if (seed % 4 == 0) return LLVMFuzzerMutate(data, size, most);
  unsigned state = seed;
  for (unsigned changes = 1 + draw(&state, 3); changes > 0; changes--) size = change(data, size, most, &state);
  return size;
}
