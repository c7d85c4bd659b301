/* Reads ELF files: symbol tables of twins, and sections of the code that nvcc and NVRTC made for devices. */
#include "image.h"

#include "report.h"

#include <cstring>
#include <elf.h>
#include <fstream>
#include <iterator>

namespace fake {
namespace {

/* an ELF file in memory; a part that is not there is a fault */
struct elf {
  const char *start;
  size_t bytes;
  std::string name;
  Elf64_Ehdr head;

  elf(const char *data, size_t size, const std::string &called) : start(data), bytes(size), name(called) {
    head = get<Elf64_Ehdr>(0);
  }
  const char *at(size_t offset, size_t size) const {
    if (offset > bytes || size > bytes - offset) fake_fault("image", "%s is not a whole ELF file", name.c_str());
    return start + offset;
  }
  template <class T> T get(size_t offset) const {
    T value;
    memcpy(&value, at(offset, sizeof value), sizeof value);
    return value;
  }
  size_t sections() const {
    return head.e_shnum;
  }
  Elf64_Shdr section(size_t index) const {
    return get<Elf64_Shdr>(head.e_shoff + index * sizeof(Elf64_Shdr));
  }
  std::string section_name(const Elf64_Shdr &s) const {
    return at(section(head.e_shstrndx).sh_offset + s.sh_name, 1);
  }
  /* every symbol and its name */
  template <class F> void symbols(F &&each) const {
    for (size_t i = 0; i < sections(); i++) {
      Elf64_Shdr table = section(i);
      if (table.sh_type != SHT_SYMTAB) continue;
      Elf64_Shdr names = section(table.sh_link);
      for (size_t k = 0; k < table.sh_size / sizeof(Elf64_Sym); k++) {
        auto symbol = get<Elf64_Sym>(table.sh_offset + k * sizeof(Elf64_Sym));
        each(k, symbol, at(names.sh_offset + symbol.st_name, 1));
      }
    }
  }
};

bool starts(const std::string &text, const char *head) {
  return text.compare(0, strlen(head), head) == 0;
}

/* Attributes in .nv.info sections: one byte each of form and number, two bytes of value or size, then `size` bytes. */
template <class F> void attributes(const elf &file, const Elf64_Shdr &s, F &&each) {
  enum { SIZED = 4 };
  for (size_t offset = 0; offset + 4 <= s.sh_size;) {
    auto form = file.get<uint8_t>(s.sh_offset + offset), number = file.get<uint8_t>(s.sh_offset + offset + 1);
    size_t size = form == SIZED ? file.get<uint16_t>(s.sh_offset + offset + 2) : 0;
    if (form == SIZED) each(number, s.sh_offset + offset + 4, size);
    offset += 4 + size;
  }
}

std::map<std::string, kernel_needs> read_kernels(const elf &file, int arch) {
  enum { MAX_THREADS = 0x05, REGISTERS = 0x2f };
  const size_t reserved = arch >= 90 ? 1024 : 0; /* the driver's part of shared memory, counted from sm_90 on */
  std::map<std::string, kernel_needs> kernels;
  std::map<size_t, std::string> names;
  file.symbols([&](size_t index, const Elf64_Sym &, const char *name) { names[index] = name; });
  for (size_t i = 0; i < file.sections(); i++) {
    Elf64_Shdr s = file.section(i);
    std::string name = file.section_name(s);
    if (starts(name, ".nv.shared.")) {
      kernels[name.substr(11)].shared = s.sh_size > reserved ? s.sh_size - reserved : 0;
    } else if (starts(name, ".nv.info.")) {
      attributes(file, s, [&](int number, size_t offset, size_t size) {
        if (number != MAX_THREADS || size < 12) return;
        kernels[name.substr(9)].max_threads = static_cast<int>(
            file.get<uint32_t>(offset) * file.get<uint32_t>(offset + 4) * file.get<uint32_t>(offset + 8));
      });
    } else if (name == ".nv.info") {
      attributes(file, s, [&](int number, size_t offset, size_t size) {
        if (number == REGISTERS && size >= 8)
          kernels[names[file.get<uint32_t>(offset)]].registers = static_cast<int>(file.get<uint32_t>(offset + 4));
      });
    }
  }
  return kernels;
}

} // namespace

std::map<std::string, const void *> read_functions(const char *path, uintptr_t base) {
  std::ifstream file(path, std::ios::binary);
  std::string image((std::istreambuf_iterator<char>(file)), {});
  std::map<std::string, const void *> found;
  elf(image.data(), image.size(), path).symbols([&](size_t, const Elf64_Sym &symbol, const char *name) {
    if (ELF64_ST_TYPE(symbol.st_info) == STT_FUNC && symbol.st_shndx != SHN_UNDEF)
      found[name] = reinterpret_cast<const void *>(base + symbol.st_value);
  });
  return found;
}

std::vector<device_image> read_images(const void *registered) {
  /* nvcc's wrapper, the container's head, and an entry's: fields that are not used have no names */
  struct wrapper {
    uint32_t magic, version;
    const char *data;
  } outer;
  struct container {
    uint32_t magic;
    uint16_t version, head_bytes;
    uint64_t bytes;
  } head;
  struct entry {
    uint16_t kind, version;
    uint32_t head_bytes;
    uint64_t bytes;
    uint32_t unused[3], arch;
  } one;
  enum { PTX = 1, ELF = 2 };
  memcpy(&outer, registered, sizeof outer);
  memcpy(&head, outer.data, sizeof head);
  if (outer.magic != 0x466243b1 || head.magic != 0xba55ed50)
    fake_fault("image", "the program's device code is in a form that the fake GPU does not know");
  std::vector<device_image> images;
  const char *at = outer.data + head.head_bytes, *end = at + head.bytes;
  for (; at < end; at += one.head_bytes + one.bytes) {
    memcpy(&one, at, sizeof one);
    const char *code = at + one.head_bytes;
    bool readable = one.kind == ELF && one.bytes > SELFMAG && !memcmp(code, ELFMAG, SELFMAG);
    device_image image = {static_cast<int>(one.arch), one.kind == PTX, {}};
    if (readable)
      image.kernels =
          read_kernels(elf(code, one.bytes, "the program's code for sm_" + std::to_string(one.arch)), image.arch);
    if (one.kind == PTX || one.kind == ELF) images.push_back(image);
  }
  return images;
}

namespace {

/* where an ELF file in memory ends: after its section headers or its last section, whatever is later */
size_t elf_end(const char *start) {
  Elf64_Ehdr head;
  memcpy(&head, start, sizeof head);
  size_t end = head.e_shoff + head.e_shnum * sizeof(Elf64_Shdr);
  for (size_t i = 0; i < head.e_shnum; i++) {
    Elf64_Shdr s;
    memcpy(&s, start + head.e_shoff + i * sizeof s, sizeof s);
    if (s.sh_type != SHT_NOBITS) end = std::max(end, s.sh_offset + s.sh_size);
  }
  return std::max(end, head.e_phoff + head.e_phnum * sizeof(Elf64_Phdr));
}

/* the number after a directive of PTX, such as `.target sm_`; 0 if it is not there */
int ptx_number(const std::string &text, const char *directive) {
  size_t at = text.find(directive);
  return at == std::string::npos ? 0 : atoi(text.c_str() + at + strlen(directive));
}

} // namespace

bool read_image(const void *code, device_image &image) {
  const char *start = static_cast<const char *>(code);
  if (memcmp(start, ELFMAG, SELFMAG) == 0) {
    Elf64_Ehdr head;
    memcpy(&head, start, sizeof head);
    if (head.e_machine != EM_CUDA) return false;
    image = {static_cast<int>(head.e_flags >> 8 & 0xff), false, {}};
    elf file(start, elf_end(start), "the library's code for sm_" + std::to_string(image.arch));
    image.kernels = read_kernels(file, image.arch);
    file.symbols([&](size_t, const Elf64_Sym &symbol, const char *name) {
      enum { ENTRY = 0x10 };
      if (ELF64_ST_TYPE(symbol.st_info) == STT_FUNC && symbol.st_other & ENTRY) image.kernels[name];
    });
    return true;
  }
  std::string text = start;
  if (text.find(".version ") == std::string::npos || !ptx_number(text, ".target sm_")) return false;
  image = {ptx_number(text, ".target sm_"), true, {}};
  const std::string entry = ".entry ";
  for (size_t at = text.find(entry); at != std::string::npos; at = text.find(entry, at + 1)) {
    size_t from = at + entry.size();
    image.kernels[text.substr(from, text.find_first_of("( \n", from) - from)];
  }
  return true;
}

const device_image *choose_image(const std::vector<device_image> &images, int arch) {
  const device_image *best = nullptr;
  auto fits = [&](const device_image &i) { return i.arch <= arch && (i.ptx || i.arch / 10 == arch / 10); };
  for (const device_image &i : images)
    if (fits(i) && (!best || best->ptx > i.ptx || (best->ptx == i.ptx && best->arch < i.arch))) best = &i;
  return best;
}

} // namespace fake
