/* SPDX-License-Identifier: Apache-2.0 */
/* What tests over the fault method share: a file system with its aio, one operation at a
 * time. */
#ifndef TESTS_FAULT_UTIL_H
#define TESTS_FAULT_UTIL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "io/aio.h"
#include "io/fault.h"

#define BIT(kind) (1u << (kind))

struct fault_disk {
    struct sti_fault *fault;
    struct sti_aio *aio;
};

/* An empty file system; what a crash of another leaves. */
void
fault_start(struct fault_disk *disk);
void
fault_crash(struct fault_disk *left, const struct fault_disk *disk, uint64_t variant);
void
fault_stop(struct fault_disk *disk);

/* One operation and its result. flags: of open or unlink. */
int32_t
fault_run_path(struct fault_disk *disk, enum sti_aio_kind kind, const char *path, uint32_t flags);
int32_t
fault_rename(struct fault_disk *disk, const char *from, const char *to);
int32_t
fault_run_fd(struct fault_disk *disk, enum sti_aio_kind kind, int fd, uint64_t offset);
int32_t
fault_write_at(struct fault_disk *disk, int fd, uint64_t offset, const char *bytes, size_t n_bytes);

/* The length of a file, or -ENOENT. bytes: 8192 of them. */
int32_t
fault_read_file(struct fault_disk *disk, const char *path, char *bytes);
bool
fault_is_file(struct fault_disk *disk, const char *path, const char *text);
bool
fault_exists(struct fault_disk *disk, const char *path);
int
fault_must_open(struct fault_disk *disk, const char *path);

/* A file that is there for good, and open. */
int
fault_durable_file(struct fault_disk *disk, const char *path, const char *text);

#endif
