/* SHA-256 as text, by libmd. */
#include <sha2.h>

#include "artifact/artifact.h"

void sha256_hex(const void *bytes, size_t length, char out[65]) {
  SHA256Data(bytes, length, out);
}
