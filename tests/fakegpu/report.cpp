/* Settings, faults, explanations, the recording, and what must be gone at exit. */
#include "report.h"

#include "api.h"
#include "block.h"

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cxxabi.h>
#include <map>
#include <mutex>
#include <unistd.h>

namespace fake {

thread_local const char *running;

static void bad_setting(const char *name, const char *value, const char *wanted) {
  fprintf(stderr, "fake gpu: %s=%s: should be %s\n", name, value, wanted);
  _exit(2);
}

/* a whole number from the environment with an optional suffix K, M, G */
static long long number(const char *name, long long usual, long long low, long long high) {
  const char *text = getenv(name);
  if (!text) return usual;
  char *end;
  long long value = strtoll(text, &end, 10);
  int shift = *end == 'K' ? 10 : *end == 'M' ? 20 : *end == 'G' ? 30 : 0;
  if (shift) end++;
  if (end == text || *end || value < low || value > high >> shift) bad_setting(name, text, "a whole number in range");
  return value << shift;
}

/* one number, or the first and the last of several */
static void read_seeds(settings &s) {
  const char *text = getenv("PD_FAKE_SEED");
  if (!text) return;
  char *end;
  errno = 0;
  long long first = strtoll(text, &end, 10), last = first;
  bool read = end != text;
  if (*end == '-') {
    const char *second = end + 1;
    last = strtoll(second, &end, 10);
    read = read && end != second;
  }
  if (!read || *end || errno || first < 0 || last < first)
    bad_setting("PD_FAKE_SEED", text, "a whole number, or the first and the last of several: 1-20");
  s.seed = static_cast<uint64_t>(first);
  s.seeds = static_cast<uint64_t>(last - first) + 1;
}

/* KIND:CALL:NUMBER, or with @RANK, which then must be this one */
static void read_mistake(settings &s) {
  const char *text = getenv("PD_FAKE_MISTAKE"), *rank = getenv("OMPI_COMM_WORLD_RANK");
  if (!text) return;
  static const char *const kinds[] = {"drop", "half", "early", "late", "other", "wide"};
  std::string all = text, kind = all.substr(0, all.find(':'));
  size_t last = all.rfind(':'), at = all.find('@');
  char *end = nullptr;
  if (last != std::string::npos && last > kind.size())
    s.planted = {kind, all.substr(kind.size() + 1, last - kind.size() - 1), strtoull(text + last + 1, &end, 10)};
  if (!s.planted.number || (*end && *end != '@') ||
      std::find(std::begin(kinds), std::end(kinds), kind) == std::end(kinds))
    bad_setting("PD_FAKE_MISTAKE", text, "KIND:CALL:NUMBER or KIND:CALL:NUMBER@RANK, as tests/fakegpu/fake.h says");
  if (at != std::string::npos && all.substr(at + 1) != (rank ? rank : "0")) s.planted.number = 0;
}

static settings read_settings() {
  settings s;
  read_seeds(s);
  read_mistake(s);
  s.devices = static_cast<int>(number("PD_FAKE_DEVICES", s.devices, 0, 64));
  s.arch = static_cast<int>(number("PD_FAKE_ARCH", s.arch, 50, 200));
  s.driver = static_cast<int>(number("PD_FAKE_DRIVER", s.driver, 0, 99999));
  s.threads = static_cast<int>(number("PD_FAKE_THREADS", s.threads, 1, 256));
  s.memory = static_cast<size_t>(number("PD_FAKE_MEMORY", static_cast<long long>(s.memory), 0, INT64_MAX));
  s.timeout = static_cast<double>(number("PD_FAKE_TIMEOUT", static_cast<long long>(s.timeout), 1, 86400));
  s.leaks = number("PD_FAKE_LEAKS", 1, 0, 1) != 0;
  s.races = number("PD_FAKE_RACES", 0, 0, 1) != 0;
  if (s.races) s.threads = 1; /* its tables belong to one */
  if (const char *text = getenv("PD_FAKE_BLOCKS")) {
    if (!strcmp(text, "forward"))
      s.blocks = block_order::forward;
    else if (!strcmp(text, "reverse"))
      s.blocks = block_order::reverse;
    else if (strcmp(text, "seeded"))
      bad_setting("PD_FAKE_BLOCKS", text, "forward, reverse or seeded");
  }
  if (const char *text = getenv("PD_FAKE_KERNELS")) s.kernels = text;
  if (const char *text = getenv("PD_FAKE_RECORD")) {
    s.record = text;
    const char *rank = getenv("OMPI_COMM_WORLD_RANK");
    size_t at = s.record.find("%r");
    if (at != std::string::npos) s.record.replace(at, 2, rank ? rank : "0");
  }
  return s;
}

const settings &config() {
  static const settings &s = *new settings(read_settings());
  return s;
}

uint64_t mix(uint64_t a, uint64_t b) { /* splitmix64's finaliser over both */
  uint64_t x = a * 0x9e3779b97f4a7c15u + b + 0x9e3779b97f4a7c15u;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return x ^ x >> 31;
}

std::string demangled(const char *name) {
  int status;
  char *text = abi::__cxa_demangle(name, nullptr, nullptr, &status);
  std::string result = text ? text : name;
  free(text);
  return result;
}

/* ---- recording ---- */

static FILE *record_file() {
  static FILE *file = [] {
    FILE *f = config().record.empty() ? nullptr : fopen(config().record.c_str(), "w");
    if (!f && !config().record.empty()) bad_setting("PD_FAKE_RECORD", config().record.c_str(), "a file to write");
    return f;
  }();
  return file;
}

bool recording() {
  return record_file() != nullptr;
}

/* ---- planted mistakes ---- */

static bool at_hand; /* the call that is being made is the one */

bool dropped(const char *call) {
  const char *kind = fake_planted(call);
  return kind && !strcmp(kind, "drop");
}

bool planted(const char *mistake) {
  return at_hand && config().planted.kind == mistake;
}

/* ---- objects ---- */

struct object {
  const char *kind;
  bool alive;
};
static std::mutex objects_lock;
static std::map<const void *, object> &objects() {
  static auto *all = new std::map<const void *, object>; /* lives until the process ends: checked at exit */
  return *all;
}

void check_objects() {
  std::lock_guard<std::mutex> hold(objects_lock);
  std::map<std::string, int> left;
  for (auto &entry : objects())
    if (entry.second.alive) left[entry.second.kind]++;
  if (left.empty()) return;
  std::string text;
  for (auto &entry : left) text += (text.empty() ? "" : ", ") + std::to_string(entry.second) + " " + entry.first;
  fake_fault("leak", "not destroyed at exit: %s", text.c_str());
}

} // namespace fake

using namespace fake;

void fake_fault(const char *name, const char *format, ...) {
  char text[2048];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  std::string where = kernel_position();
  if (where.empty() && running) where = running;
  const char *rank = getenv("OMPI_COMM_WORLD_RANK");
  fflush(stdout);
  fprintf(stderr, "fake gpu: fault: %s: %s%s%s%s%s%s\n", name, where.c_str(), where.empty() ? "" : ": ", text,
          rank ? " (rank " : "", rank ? rank : "", rank ? ")" : "");
  if (recording()) fflush(record_file());
  _exit(FAKE_FAULT_STATUS);
}

const char *fake_planted(const char *call) {
  static uint64_t seen;
  const mistake &m = config().planted;
  at_hand = false;
  if (!m.number || m.call != call || ++seen != m.number) return nullptr;
  at_hand = true;
  fake_record("host: planted: %s", m.kind.c_str());
  return m.kind.c_str();
}

void fake_explain(const char *call, const char *format, ...) {
  char text[1024];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  fprintf(stderr, "fake gpu: %s: %s\n", call, text);
}

void fake_record(const char *format, ...) {
  FILE *file = record_file();
  if (!file) return;
  va_list arguments;
  va_start(arguments, format);
  vfprintf(file, format, arguments);
  va_end(arguments);
  fputc('\n', file);
}

void fake_object_made(const char *kind, const void *made) {
  std::lock_guard<std::mutex> hold(objects_lock);
  objects()[made] = {kind, true};
}

/* the entry of a live object of this kind; everything else is a fault */
static object &alive(const char *kind, const void *what, const char *call) {
  auto found = objects().find(what);
  if (found == objects().end() || strcmp(found->second.kind, kind))
    fake_fault("handle", "%s: %p is no %s", call, what, kind);
  if (!found->second.alive) fake_fault("handle", "%s: this %s was destroyed before", call, kind);
  return found->second;
}

void fake_object_destroyed(const char *kind, const void *what) {
  std::lock_guard<std::mutex> hold(objects_lock);
  alive(kind, what, "destroy").alive = false;
}

void fake_object_check(const char *kind, const void *what, const char *call) {
  std::lock_guard<std::mutex> hold(objects_lock);
  alive(kind, what, call);
}
