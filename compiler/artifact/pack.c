/* Plans as zlib streams. */
#include <stdlib.h>
#include <zlib.h>

#include "artifact/artifact.h"

void pack(Text *out, const char *bytes, size_t length) {
  uLongf size = compressBound(length);
  unsigned char *packed = malloc(size);
  if (!packed || compress2(packed, &size, (const unsigned char *)bytes, length, Z_DEFAULT_COMPRESSION) != Z_OK) {
    fprintf(stderr, "pdc: out of memory\n");
    exit(70);
  }
  text_put(out, (const char *)packed, size);
  free(packed);
}
