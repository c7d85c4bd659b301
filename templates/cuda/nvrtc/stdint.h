/* For NVRTC, which has no headers of C: the types of a 64-bit Linux. */
#ifndef PD_NVRTC_STDINT_H
#define PD_NVRTC_STDINT_H

typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long int64_t;
typedef long intptr_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long uint64_t;
typedef unsigned long uintptr_t;

#define INT32_MAX 2147483647
#define INT64_MAX 9223372036854775807l
#define UINT32_MAX 4294967295u
#define UINT64_MAX 18446744073709551615ul
#define INT64_C(value) value##l
#define UINT32_C(value) value##u
#define UINT64_C(value) value##ul

#endif
