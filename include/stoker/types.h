/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Words that every other header of Stoker uses: errors, results, option structs.
 *
 * Conventions of the whole interface
 *   - A function that can fail returns int: 0 or a small count, else a negative code: an errno
 *     value (-ENOENT), or one of the STK_E_ codes below. stk_strerror() names both kinds.
 *   - Objects and large counts come back through ret_ parameters, written on success only.
 *   - A pointer argument is borrowed for the call unless its comment says otherwise.
 *   - An option struct begins with its own size; zero in any field means the default. Fill it
 *     with the matching STK_..._OPTS_INIT as the first initializer. A field that this library
 *     does not know yet and that is not zero is refused with -E2BIG.
 *   - The library never prints, exits, forks, reads the environment or touches signals; all of
 *     its threads block every signal.
 */
#ifndef STOKER_TYPES_H
#define STOKER_TYPES_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define STK_VERSION_MAJOR 0
#define STK_VERSION_MINOR 1
#define STK_VERSION_PATCH 0

#if defined(__GNUC__)
#define STK_API __attribute__((visibility("default")))
#else
#define STK_API
#endif

/* For an option whose zero has a meaning of its own: says "zero, not the default". */
#define STK_NONE UINT32_MAX

/* Reads in flight where queue_depth is 0. A file is on its way through open, read and close: a
 * disk of a few µs an operation runs dry with 64 files, while all of them are being opened. */
#define STK_QUEUE_DEPTH 256u

/* Stored bytes are damaged: an index, a state, a manifest. */
#define STK_E_CORRUPT (-10001)
/* Stored bytes are of a format version that this library does not read. */
#define STK_E_VERSION (-10002)
/* An index does not describe the data set any more. */
#define STK_E_STALE (-10003)
/* Two things that must belong together do not: a state and a data set, order or world. */
#define STK_E_MISMATCH (-10004)
/* A sample cannot be read or decoded. */
#define STK_E_SAMPLE (-10101)
/* More batches are asked for than may be borrowed at a time. */
#define STK_E_BORROW (-10201)
/* What is configured cannot work: a tier or a staging that does not fit. */
#define STK_E_INFEASIBLE (-10301)

#define STK_ERROR_MESSAGE_SIZE 256
#define STK_ERROR_PATH_SIZE 512
#define STK_NO_SAMPLE UINT64_MAX

/*
 * What went wrong, for people. Calls that a person configures take one; it may be NULL.
 * Written on failure only. path is empty, sample is STK_NO_SAMPLE and rank is -1 where
 * they do not apply. Initialization is not needed.
 */
typedef struct stk_error {
    int code;
    int rank;
    uint64_t sample;
    char message[STK_ERROR_MESSAGE_SIZE];
    char path[STK_ERROR_PATH_SIZE];
} stk_error;

/*
 * The name of a code of this library or of errno, positive or negative. Returns a
 * constant string, never NULL. Any thread; does not block.
 */
STK_API const char *
stk_strerror(int code);

/* "major.minor.patch" of the library that is linked. Returns a constant string. Any
 * thread. */
STK_API const char *
stk_version(void);

#ifdef __cplusplus
}
#endif

#endif
