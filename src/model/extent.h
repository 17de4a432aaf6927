/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the bytes of a sample lie: a range of a file. Every format comes down to this, so
 * that whatever reads samples knows no format.
 */
#ifndef STI_MODEL_EXTENT_H
#define STI_MODEL_EXTENT_H

#include <stdint.h>

/*
 * path    relative to dir_fd; borrowed until the data set is closed, as dir_fd is. The same
 *         pointer for every sample of a data set that is one file.
 * file    the number of the file among those of the data set that hold many samples each and
 *         are worth holding open; STI_EXTENT_WHOLE where the sample is all of its file.
 * offset  first byte in the file; 0 where a file is a sample.
 * length  bytes, as they were when the data set was indexed. 0 is possible (an empty file).
 *         offset + length never exceeds INT64_MAX.
 * file_bytes, file_mtime_ns  of that file when it was indexed, the time modulo 2^64: whoever opens
 *         it compares. Not set where file is STI_EXTENT_WHOLE.
 */
#define STI_EXTENT_WHOLE UINT32_MAX

struct sti_extent {
    const char *path;
    int dir_fd;
    uint32_t file;
    uint64_t offset;
    uint64_t length;
    uint64_t file_bytes;
    int64_t file_mtime_ns;
};

#endif
