/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opening checkpoints and plain files for reading, and what is to be read of them. Where
 * that lies is in read_map.c, the reading itself in read_run.c. One thread at a time.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "ckpt/reader_internal.h"

#define PATH_SIZE 2048u
#define LENGTH_BYTES 8u

const char *
sti_reader_part_path(const struct sti_reader *reader, uint32_t part, char *path, size_t path_size)
{
    if (reader->file_path)
        return reader->file_path;
    if (sti_scan_part_path(&reader->opts.scan, &reader->manifest, part, path, path_size) ==
        -ENAMETOOLONG)
        return "a path that is too long";
    return path;
}

static int
open_part_here(struct sti_reader *reader, uint32_t idx, stk_error *err)
{
    struct sti_reader_part *part = &reader->parts[idx];
    char path[PATH_SIZE];
    int dir_fd = AT_FDCWD;
    const char *name = reader->file_path;

    if (!name) {
        dir_fd = sti_scan_part_path(&reader->opts.scan, &reader->manifest, idx, path, sizeof(path));
        name = path;
    }
    if (dir_fd == -ENAMETOOLONG)
        return sti_error_set(err, STK_E_CORRUPT, "the path of part %" PRIu32 " is too long", idx);
    part->dio = sti_dio_buffered();
    int rc = reader->opts.is_buffered ? 0 : sti_dio_probe(dir_fd, name, &part->dio);
    struct sti_aio_op op = {.kind = STI_AIO_OPEN,
                            .dir_fd = dir_fd,
                            .path = name,
                            .open_flags = O_RDONLY | (part->dio.is_direct ? O_DIRECT : 0)};
    if (rc == 0)
        rc = sti_aio_run(reader->opts.scan.aio, &op);
    if (rc < 0)
        return sti_error_set_path(err, rc == -ENOENT ? STK_E_CORRUPT : rc, name,
                                  "part %" PRIu32 " cannot be opened: %s", idx, sti_error_text(rc));
    part->fd = rc;
    return 0;
}

/* Whether a part lies here in its full size, or at all where it may be cut; that has been seen
 * already where all must be here. */
static bool
is_here(const struct sti_reader *reader, uint32_t idx)
{
    char path[PATH_SIZE];
    struct statx found = {0};
    struct sti_aio_op op = {.kind = STI_AIO_STATX,
                            .path = path,
                            .statx_mask = STATX_SIZE | STATX_TYPE,
                            .statx = &found};

    if (!reader->opts.scan.nodes && !reader->opts.may_lack)
        return true;
    op.dir_fd = sti_scan_part_path(&reader->opts.scan, &reader->manifest, idx, path, sizeof(path));
    if (op.dir_fd == -ENAMETOOLONG || sti_aio_run(reader->opts.scan.aio, &op) < 0)
        return false;
    bool is_whole = found.stx_size == reader->manifest.parts[idx].n_bytes;
    /* Opening a FIFO would wait for its writer. */
    return S_ISREG(found.stx_mode) &&
           (is_whole || (reader->opts.may_lack && !reader->opts.scan.nodes));
}

/* node: which of the others to ask first. */
static int
open_part(struct sti_reader *reader, uint32_t idx, uint32_t *node, stk_error *err)
{
    struct sti_reader_part *part = &reader->parts[idx];
    int rc = -ENOENT;

    if (is_here(reader, idx))
        rc = open_part_here(reader, idx, err);
    if (rc == 0 || !reader->opts.scan.nodes)
        return rc;
    rc = sti_nodes_find_part(&reader->opts.scan, &reader->manifest, idx, node, err);
    part->node = *node;
    part->dio = sti_dio_buffered();
    return rc;
}

static int
open_parts(struct sti_reader *reader, stk_error *err)
{
    uint32_t chunk_bytes = reader->manifest.chunk_bytes;
    uint32_t n = reader->manifest.n_parts;
    uint32_t node = 0;
    int rc = 0;

    /* Whole chunks in a slot, and one at least. */
    reader->slot_bytes = reader->opts.slot_bytes / chunk_bytes * chunk_bytes;
    if (reader->slot_bytes == 0)
        reader->slot_bytes = chunk_bytes;
    reader->parts = sti_mem_new(n, sizeof(reader->parts[0]));
    if (!reader->parts)
        return sti_error_set(err, -ENOMEM, "no memory for %" PRIu32 " parts", n);
    for (uint32_t idx = 0; idx < n; idx++)
        reader->parts[idx].fd = -1;
    for (uint32_t idx = 0; rc == 0 && idx < n; idx++) {
        rc = open_part(reader, idx, &node, err);
        reader->parts[idx].is_missing = rc < 0 && reader->opts.may_lack;
        rc = reader->parts[idx].is_missing ? 0 : rc;
    }
    if (rc == 0 && sti_reader_map(reader) < 0)
        rc = sti_error_set(err, -ENOMEM, "no memory for a reader");
    return rc;
}

int
sti_reader_open(struct sti_reader **ret_reader, struct sti_manifest *manifest,
                const struct sti_reader_opts *opts, stk_error *err)
{
    struct sti_reader *reader = sti_mem_new(1, sizeof(*reader));

    if (!reader) {
        sti_manifest_fini(manifest);
        return sti_error_set(err, -ENOMEM, "no memory for a reader");
    }
    reader->opts = *opts;
    reader->manifest = *manifest;
    /* On other nodes they are looked for once, when they are opened. */
    int rc = opts->scan.nodes || opts->may_lack
                 ? 0
                 : sti_scan_check_parts(&opts->scan, &reader->manifest, err);
    if (rc == 0)
        rc = open_parts(reader, err);
    if (rc < 0) {
        sti_reader_close(reader);
        return rc;
    }
    *ret_reader = reader;
    return 0;
}

void
sti_reader_close(struct sti_reader *reader)
{
    if (!reader)
        return;
    for (uint32_t idx = 0; reader->parts && idx < reader->manifest.n_parts; idx++) {
        struct sti_aio_op op = {.kind = STI_AIO_CLOSE, .fd = reader->parts[idx].fd};

        if (op.fd < 0)
            continue;
        if (reader->opts.scan.aio)
            (void)sti_aio_run(reader->opts.scan.aio, &op); /* read only: nothing to lose */
        else
            sti_aio_op_execute(&op);
    }
    sti_mem_free(reader->parts);
    sti_mem_free(reader->stretches);
    sti_mem_free(reader->file_path);
    sti_manifest_fini(&reader->manifest);
    sti_mem_free(reader);
}

void
sti_reader_set_aio(struct sti_reader *reader, struct sti_aio *aio)
{
    reader->opts.scan.aio = aio;
}

const struct sti_manifest *
sti_reader_manifest(const struct sti_reader *reader)
{
    return &reader->manifest;
}

uint64_t
sti_reader_mended_bytes(const struct sti_reader *reader)
{
    return reader->mended_bytes;
}

/* ---- plain files ------------------------------------------------------------------- */

static int
read_file(struct sti_reader *reader, uint64_t offset, void *bytes, uint32_t n_bytes)
{
    struct sti_aio_op op = {.kind = STI_AIO_READ_FILE,
                            .dir_fd = AT_FDCWD,
                            .path = reader->file_path,
                            .bytes = bytes,
                            .n_bytes = n_bytes,
                            .offset = offset};
    int rc = sti_aio_run(reader->opts.scan.aio, &op);

    return rc >= 0 && (uint32_t)rc < n_bytes ? STK_E_CORRUPT : rc;
}

static uint64_t
decode_length(const unsigned char bytes[LENGTH_BYTES])
{
    uint64_t length = 0;

    for (uint32_t at = LENGTH_BYTES; at > 0; at--)
        length = length << 8 | bytes[at - 1];
    return length;
}

/* A manifest of a file that has none: one part, no checksums. */
static int
describe_file(struct sti_reader *reader, uint64_t n_bytes)
{
    struct sti_manifest *manifest = &reader->manifest;
    struct memory {
        struct sti_part part;
        struct sti_part_extent extent;
        const char *root;
    } *memory = sti_mem_new(1, sizeof(*memory));

    if (!memory)
        return -ENOMEM;
    memory->extent = (struct sti_part_extent){0, n_bytes};
    memory->part =
        (struct sti_part){.n_extents = 1, .n_bytes = n_bytes, .extents = &memory->extent};
    memory->root = ".";
    manifest->memory = memory;
    manifest->parts = &memory->part;
    manifest->roots = &memory->root;
    manifest->n_parts = 1;
    manifest->n_roots = 1;
    manifest->world = 1;
    manifest->chunk_bytes = 1u << 20;
    return 0;
}

static int
read_header(struct sti_reader *reader, uint64_t file_bytes, stk_error *err)
{
    unsigned char length_bytes[LENGTH_BYTES];
    int rc = read_file(reader, 0, length_bytes, LENGTH_BYTES);

    if (rc < 0)
        return sti_error_set_path(err, rc, reader->file_path, "it has no safetensors header: %s",
                                  sti_error_text(rc));
    uint64_t length = decode_length(length_bytes);
    if (length > STI_LAYOUT_HEADER_MAX || length + LENGTH_BYTES > file_bytes)
        return sti_error_set_path(err, STK_E_CORRUPT, reader->file_path,
                                  "its header's length is %" PRIu64 ", the file's %" PRIu64, length,
                                  file_bytes);
    char *json = sti_mem_new(length, 1);
    if (!json)
        return sti_error_set(err, -ENOMEM, "no memory for a header of %" PRIu64 " bytes", length);
    rc = read_file(reader, LENGTH_BYTES, json, (uint32_t)length);
    if (rc < 0)
        rc = sti_error_set_path(err, rc, reader->file_path, "its header cannot be read: %s",
                                sti_error_text(rc));
    else
        rc = sti_layout_parse(&reader->manifest.layout, json, length, file_bytes, err);
    sti_mem_free(json);
    if (rc < 0 && err)
        (void)snprintf(err->path, sizeof(err->path), "%s", reader->file_path); /* cut is fine */
    return rc;
}

int
sti_reader_open_file(struct sti_reader **ret_reader, const char *path,
                     const struct sti_reader_opts *opts, stk_error *err)
{
    struct sti_reader *reader = sti_mem_new(1, sizeof(*reader));
    struct statx found = {0};
    struct sti_aio_op op = {.kind = STI_AIO_STATX,
                            .dir_fd = AT_FDCWD,
                            .path = path,
                            .statx_mask = STATX_SIZE | STATX_TYPE,
                            .statx = &found};
    int rc = sti_aio_run(opts->scan.aio, &op);

    if (rc == 0 && !S_ISREG(found.stx_mode)) /* opening a FIFO would wait for its writer */
        rc = S_ISDIR(found.stx_mode) ? -EISDIR : -EINVAL;
    if (rc < 0) {
        sti_mem_free(reader);
        return sti_error_set_path(err, rc, path, "it cannot be opened: %s", sti_error_text(rc));
    }
    if (reader) {
        reader->opts = *opts;
        reader->file_path = sti_mem_strdup(path);
    }
    if (!reader || !reader->file_path || describe_file(reader, found.stx_size) < 0) {
        sti_reader_close(reader);
        return sti_error_set(err, -ENOMEM, "no memory for a reader");
    }
    rc = read_header(reader, found.stx_size, err);
    if (rc == 0)
        rc = open_parts(reader, err);
    if (rc < 0) {
        sti_reader_close(reader);
        return rc;
    }
    *ret_reader = reader;
    return 0;
}

/* ---- reading
 *
 *
 * ------------------------------------------------------------------------------------------ */

int
sti_reader_read_list(struct sti_reader *reader, const struct sti_read_list *list, stk_error *err)
{
    struct sti_segments segments = {0};
    struct sti_reading reading = {0};
    int rc = 0;

    for (uint32_t at = 0; rc == 0 && at < list->n_wants; at++) {
        const struct sti_slice *slice = &list->wants[at].slice;
        uint64_t first;

        if (slice->n_runs == 0)
            continue;
        first = sti_slice_run(slice, 0);
        rc = sti_segments_add(&segments, reader,
                              (struct sti_segment){.stream_offset = slice->tensor->offset + first,
                                                   .want = &list->wants[at]},
                              sti_slice_run(slice, slice->n_runs - 1) + slice->run_bytes - first);
    }
    for (uint32_t at = 0; rc == 0 && at < list->n_ranges; at++)
        rc = sti_segments_add(&segments, reader,
                              (struct sti_segment){.stream_offset = list->ranges[at].offset,
                                                   .dst = list->ranges[at].dst},
                              list->ranges[at].n_bytes);
    if (rc < 0)
        (void)sti_error_set(err, rc, "no memory to read %" PRIu32 " tensors",
                            list->n_wants + list->n_ranges);
    else
        rc = sti_reader_run(reader, &segments, &reading, err);
    sti_mem_free(segments.list);
    return rc;
}

int
sti_reader_read(struct sti_reader *reader, const struct sti_want *wants, uint32_t n, stk_error *err)
{
    const struct sti_read_list list = {.wants = wants, .n_wants = n};

    return sti_reader_read_list(reader, &list, err);
}

int
sti_reader_read_stream(struct sti_reader *reader, uint64_t offset, uint64_t n_bytes,
                       char *dst, /* NOLINT(readability-non-const-parameter): written through */
                       stk_error *err)
{
    const struct sti_range range = {offset, n_bytes, dst};
    const struct sti_read_list list = {.ranges = &range, .n_ranges = 1};

    return sti_reader_read_list(reader, &list, err);
}

int
sti_reader_verify_part(struct sti_reader *reader, uint32_t part, stk_error *err)
{
    struct sti_segment segment = {.part = part, .n_bytes = reader->manifest.parts[part].n_bytes};
    struct sti_segments segments = {.list = &segment, .n = 1};
    const struct sti_reading reading = {.is_strict = true};

    return segment.n_bytes > 0 ? sti_reader_run(reader, &segments, &reading, err) : 0;
}

int
sti_reader_verify(struct sti_reader *reader, sti_reader_progress_fn progress, void *context,
                  stk_error *err)
{
    struct sti_segments segments = {0};
    struct sti_reading reading = {.progress = progress, .context = context, .is_strict = true};
    uint64_t n_bytes = reader->manifest.layout.stream_bytes;

    reading.total_bytes = n_bytes;
    int rc = sti_segments_add(&segments, reader, (struct sti_segment){0}, n_bytes);
    if (rc < 0)
        (void)sti_error_set(err, rc, "no memory to verify");
    else
        rc = sti_reader_run(reader, &segments, &reading, err);
    sti_mem_free(segments.list);
    return rc;
}
