/* Device code that NVRTC made: the kernels in it, and the C file that puts it into a program. */
#include <elf.h>
#include <stdlib.h>
#include <string.h>

#include "driver/toolchain.h"

typedef VEC(const char *) Names;

/* ---- reading ---- */

typedef struct Cubin {
  const char *bytes;
  size_t length;
} Cubin;

/* Part of the file, NULL if it is not wholly inside. */
static const void *part(const Cubin *cubin, uint64_t offset, uint64_t size) {
  return offset <= cubin->length && size <= cubin->length - offset ? cubin->bytes + offset : NULL;
}

/* A text in a table of texts that ends inside the file. */
static const char *text_at(const Cubin *cubin, const Elf64_Shdr *table, uint32_t offset) {
  const char *text = offset < table->sh_size ? part(cubin, table->sh_offset + offset, table->sh_size - offset) : NULL;
  return text && memchr(text, 0, table->sh_size - offset) ? text : NULL;
}

static bool read_symbols(Arena *arena, const Cubin *cubin, const Elf64_Shdr *symbols, const Elf64_Shdr *texts,
                         Names *names) {
  enum { ENTRY = 0x10 }; /* in st_other: a kernel, not a function that kernels call */
  for (uint64_t at = 0; at + sizeof(Elf64_Sym) <= symbols->sh_size; at += sizeof(Elf64_Sym)) {
    const void *place = part(cubin, symbols->sh_offset + at, sizeof(Elf64_Sym));
    if (!place) return false;
    Elf64_Sym symbol;
    memcpy(&symbol, place, sizeof symbol);
    if (ELF64_ST_TYPE(symbol.st_info) != STT_FUNC || !(symbol.st_other & ENTRY)) continue;
    const char *name = text_at(cubin, texts, symbol.st_name);
    if (!name) return false;
    vec_push(arena, names, arena_strdup(arena, name));
  }
  return true;
}

static int by_text(const void *a, const void *b) {
  return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The mangled names of a cubin's kernels, sorted. False: it is no whole cubin. */
static bool read_kernels(Arena *arena, const Cubin *cubin, Names *names) {
  const void *start = part(cubin, 0, sizeof(Elf64_Ehdr));
  Elf64_Ehdr head;
  if (!start) return false;
  memcpy(&head, start, sizeof head);
  if (memcmp(head.e_ident, ELFMAG, SELFMAG) != 0 || head.e_machine != EM_CUDA) return false;
  const void *table = part(cubin, head.e_shoff, (uint64_t)head.e_shnum * sizeof(Elf64_Shdr));
  if (!table || head.e_shentsize != sizeof(Elf64_Shdr)) return false;
  Elf64_Shdr *sections = ARENA_ARRAY(arena, Elf64_Shdr, head.e_shnum + 1);
  memcpy(sections, table, head.e_shnum * sizeof *sections);
  for (uint32_t i = 0; i < head.e_shnum; i++) {
    if (sections[i].sh_type != SHT_SYMTAB) continue;
    if (sections[i].sh_link >= head.e_shnum ||
        !read_symbols(arena, cubin, &sections[i], &sections[sections[i].sh_link], names))
      return false;
  }
  if (names->count) qsort(names->at, names->count, sizeof *names->at, by_text);
  return true;
}

static bool same(const Names *a, const Names *b) {
  bool equal = a->count == b->count;
  for (uint32_t i = 0; equal && i < a->count; i++) equal = strcmp(a->at[i], b->at[i]) == 0;
  return equal;
}

/* The kernels that all cubins have. */
static bool common_kernels(const Build *b, const CudaImage *images, uint32_t count, Names *names) {
  for (uint32_t i = 0; i < count; i++) {
    Cubin cubin = {0};
    Names more = {0};
    if (images[i].ptx) continue;
    cubin.bytes = read_whole(b->arena, arena_printf(b->arena, "%s/%s", b->directory, images[i].file), &cubin.length);
    if (!cubin.bytes) return false;
    if (!read_kernels(b->arena, &cubin, &more) || !more.count) {
      fprintf(stderr, "pdc: %s: not the code for a device that this pdc knows\n", images[i].file);
      return false;
    }
    if (names->count && !same(names, &more)) {
      fprintf(stderr, "pdc: %s has other kernels than the code for sm_%s\n", images[i].file, images[0].arch);
      return false;
    }
    *names = more;
  }
  return true;
}

/* ---- writing ---- */

static void write_image(const CudaImage *image, uint32_t index, Text *out) {
  text_printf(out,
              "__asm__(\".section .rodata\\n.balign 64\\npd_image_%u:\\n.incbin \\\"\" PD_IMAGES \"%s\\\"\\n.byte "
              "0\\n.previous\");\n"
              "extern const char pd_image_%u[] __attribute__((visibility(\"hidden\")));\n",
              index, image->file, index);
}

static void write_entry(const CudaImage *image, uint32_t index, Text *out) {
  const size_t digits = strspn(image->arch, "0123456789");
  const char *code = image->ptx ? "PD_CODE_PTX" : image->arch[digits] == 'a' ? "PD_CODE_EXACT" : "PD_CODE_FAMILY";
  text_printf(out, "  {%.*s, %s, pd_image_%u},\n", (int)digits, image->arch, code, index);
}

static void write_archs(const CudaImage *images, uint32_t count, Text *out) {
  for (uint32_t i = 0; i < count; i++) {
    if (i > 0) text_printf(out, ", ");
    if (images[i].ptx)
      text_printf(out, "later ones");
    else
      text_printf(out, "sm_%s", images[i].arch);
  }
}

bool cuda_images_source(const Build *b, const CudaImage *images, uint32_t count, Text *out) {
  Names names = {0};
  if (!common_kernels(b, images, count, &names)) return false;
  text_printf(out,
              "/* A program's kernels: their code, and the places of their handles. Made by %s.\n"
              " * PD_IMAGES is put before the names of the files with code. */\n"
              "#include \"cuda/kernels.h\"\n\n"
              "#ifndef PD_IMAGES\n#define PD_IMAGES \"\"\n#endif\n",
              PDC_VERSION);
  for (uint32_t i = 0; i < count; i++) write_image(&images[i], i, out);
  text_printf(out, "\nstatic const pd_cuda_image images[] = {\n");
  for (uint32_t i = 0; i < count; i++) write_entry(&images[i], i, out);
  text_printf(out, "};\n\n");
  for (uint32_t i = 0; i < names.count; i++) text_printf(out, "pd_cuda_handle %s;\n", names.at[i]);
  text_printf(out, "\nstatic const pd_cuda_kernel kernels[] = {\n");
  for (uint32_t i = 0; i < names.count; i++) text_printf(out, "  {\"%s\", &%s},\n", names.at[i], names.at[i]);
  text_printf(out, "};\n\nconst pd_cuda_kernels pd_cuda_program_kernels = {images, kernels, %u, %u, \"", count,
              names.count);
  write_archs(images, count, out);
  text_printf(out, "\"};\n");
  return true;
}
