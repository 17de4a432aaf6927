/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The origin. A file that is a sample is read whole in one operation that opens, reads
 * and closes it; files that hold many samples are held open (files.c). Alignment is asked
 * of the file system once, of the first file of each part of the data set, and what suits
 * all of them is used; a file that cannot be read direct (a part elsewhere, a symbolic
 * link into another file system) answers -EINVAL and is read through the page cache by
 * its reader.
 */
#include "tier/origin.h"

#include <errno.h>
#include <fcntl.h>

#include "base/error.h"

/* Beside reading: around the page cache, and without waiting at a pipe where a file
 * was. */
static uint32_t
open_flags(const struct sti_origin *origin)
{
    return (origin->dio.is_direct ? O_DIRECT : 0u) | (origin->dio.has_nowait ? O_NONBLOCK : 0u);
}

/* Asks the file systems of all parts: the largest block and alignment serve each. */
static int
probe(struct sti_origin *origin, stk_error *err)
{
    origin->dio.has_nowait = true;
    for (uint32_t part = 0; part < sti_dataset_parts(origin->dataset); part++) {
        struct sti_extent extent;
        struct sti_dio dio = sti_dio_buffered();
        int rc = sti_dataset_part_extent(origin->dataset, part, &extent);

        if (rc == 0)
            rc = sti_dio_probe(extent.dir_fd, extent.path, &dio);
        /* A first file that has vanished is a bad sample, to be met when it is read. */
        if (rc < 0 && origin->is_one_file)
            return sti_error_set_path(err, rc, extent.path, "the data set cannot be opened: %s",
                                      sti_error_text(rc));
        if (rc == 0 && !dio.has_nowait)
            origin->dio.has_nowait = false;
        if (rc < 0 || !dio.is_direct)
            continue;
        origin->dio.is_direct = true;
        if (dio.block_bytes > origin->dio.block_bytes)
            origin->dio.block_bytes = dio.block_bytes;
        if (dio.memory_align > origin->dio.memory_align)
            origin->dio.memory_align = dio.memory_align;
    }
    return 0;
}

int
sti_origin_open(struct sti_origin *origin, const struct sti_origin_opts *opts, stk_error *err)
{
    struct sti_extent extent;
    int rc = sti_dataset_extent(opts->dataset, 0, &extent);

    *origin = (struct sti_origin){.dataset = opts->dataset, .dio = sti_dio_buffered()};
    origin->is_one_file = sti_dataset_is_one_file(opts->dataset);
    if (rc < 0)
        return sti_error_set(err, rc, "the index was changed while it is in use");
    rc = probe(origin, err);
    if (rc < 0)
        return rc;
    if (opts->is_buffered) {
        bool has_nowait = origin->dio.has_nowait;

        origin->dio = sti_dio_buffered();
        origin->dio.has_nowait = has_nowait;
    }
    rc = sti_files_init(&origin->files, opts->aio, sti_dataset_files(opts->dataset),
                        opts->open_files, open_flags(origin));
    if (rc < 0)
        return sti_error_set(err, rc, "no memory for the table of open files");
    if (!origin->is_one_file)
        return 0;
    rc = sti_files_open_now(&origin->files, &extent);
    if (rc < 0)
        return sti_error_set_path(err, rc, extent.path, "the data set cannot be opened: %s",
                                  sti_origin_reason(rc));
    return 0;
}

void
sti_origin_close(struct sti_origin *origin)
{
    sti_files_fini(&origin->files);
}

bool
sti_origin_is_busy(const struct sti_origin *origin)
{
    return origin->files.n_busy > 0;
}

uint64_t
sti_origin_padding_bytes(const struct sti_origin *origin)
{
    return origin->dio.is_direct ? 2 * (uint64_t)origin->dio.block_bytes : 8;
}

uint32_t
sti_origin_align(const struct sti_origin *origin)
{
    uint32_t align = origin->dio.memory_align;

    if (align < origin->dio.block_bytes)
        align = origin->dio.block_bytes;
    return align < 8 ? 8 : align;
}

struct sti_origin_range
sti_origin_cover(const struct sti_origin *origin, const struct sti_extent *extent)
{
    uint64_t block_bytes = origin->dio.block_bytes;
    struct sti_origin_range range;

    range.skew = extent->offset % block_bytes;
    range.offset = extent->offset - range.skew;
    uint64_t end = extent->offset + extent->length + (extent->file == STI_EXTENT_WHOLE ? 1 : 0);
    range.n_bytes = (end + block_bytes - 1) / block_bytes * block_bytes - range.offset;
    return range;
}

struct sti_file_slot *
sti_origin_prepare(struct sti_origin *origin, const struct sti_extent *extent,
                   const struct sti_origin_range *range, void *bytes, struct sti_aio_op *op)
{
    struct sti_file_slot *slot = sti_files_get(&origin->files, extent);

    op->kind = slot ? STI_AIO_READ : STI_AIO_READ_FILE;
    op->fd = slot ? slot->fd : -1;
    op->dir_fd = extent->dir_fd;
    op->path = extent->path;
    op->open_flags = slot ? slot->open_flags : open_flags(origin);
    op->bytes = bytes;
    op->offset = range->offset;
    op->n_bytes = (uint32_t)range->n_bytes;
    op->is_shaped = true;
    return slot;
}

int
sti_origin_check(const struct sti_extent *extent, const struct sti_origin_range *range,
                 int32_t result)
{
    if (result < 0)
        return result;
    if ((uint64_t)result < range->skew + extent->length)
        return -ENODATA;
    if (extent->file == STI_EXTENT_WHOLE && (uint64_t)result > range->skew + extent->length)
        return -EFBIG;
    return 0;
}

const char *
sti_origin_reason(int code)
{
    if (code == -ENODATA)
        return "the file is shorter than when it was indexed";
    if (code == -EFBIG)
        return "the file is longer than when it was indexed";
    if (code == STK_E_STALE)
        return "the file changed since it was indexed; open the data set again, with a rebuilt "
               "index (option rebuild, or: stoker index --rebuild)";
    return sti_error_text(code);
}
