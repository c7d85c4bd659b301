/* What ELF files say: the functions of a twin library, and what nvcc's code for a device needs. */
#ifndef PD_FAKE_IMAGE_H
#define PD_FAKE_IMAGE_H

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace fake {

/* functions of a shared library by symbol name, local ones too; `base` is where it is loaded */
std::map<std::string, const void *> read_functions(const char *path, uintptr_t base);

/* what one kernel needs on a device */
struct kernel_needs {
  int max_threads = 1024; /* __launch_bounds__ */
  int registers = 0;      /* per thread; 0: not known */
  size_t shared = 0;      /* bytes of static shared memory */
};

/* device code of one architecture */
struct device_image {
  int arch;
  bool ptx; /* compiled by the driver: runs on every later device, its needs are not known */
  std::map<std::string, kernel_needs> kernels;
};

/* the images in what nvcc hands to __cudaRegisterFatBinary; of compressed ones only the architecture is known */
std::vector<device_image> read_images(const void *registered);

/* the image that cudaLibraryLoadData is given: a cubin, or PTX, whose kernels are known by name only. False if it is
 * neither. */
bool read_image(const void *code, device_image &image);

/* the image that a device would run; null if it can run none */
const device_image *choose_image(const std::vector<device_image> &images, int arch);

} // namespace fake
#endif
