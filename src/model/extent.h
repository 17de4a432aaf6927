/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the bytes of a sample lie: a range of a file. Every format comes down to this, so that
 * whatever reads samples knows no format.
 */
#ifndef STI_MODEL_EXTENT_H
#define STI_MODEL_EXTENT_H

#include <stdint.h>

/*
 * path    relative to the data set's directory descriptor; borrowed until the data set is
 *         closed. The same pointer for every sample of a data set that is one file.
 * offset  first byte in the file; 0 where a file is a sample.
 * length  bytes, as they were when the data set was indexed. 0 is possible (an empty file).
 *         offset + length never exceeds INT64_MAX.
 */
struct sti_extent {
    const char *path;
    uint64_t offset;
    uint64_t length;
};

#endif
