/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The origin. A small file is read whole in one operation that opens, reads and closes it; a
 * data set in one file is opened once. Alignment is asked of the file system once, of the first
 * sample's file; a file elsewhere that cannot be read direct (a symbolic link into another file
 * system) answers -EINVAL and is read through the page cache by its reader.
 */
#include "tier/origin.h"

#include <errno.h>
#include <fcntl.h>

#include "base/error.h"

static int
open_one_file(struct sti_origin *origin, const char *path, stk_error *err)
{
    struct sti_aio_op op = {.kind = STI_AIO_OPEN,
                            .dir_fd = sti_dataset_dir_fd(origin->dataset),
                            .path = path,
                            .open_flags = O_RDONLY | (origin->dio.is_direct ? O_DIRECT : 0u)};

    sti_aio_op_execute(&op);
    if (op.result < 0)
        return sti_error_set_path(err, op.result, path, "the data set cannot be opened: %s",
                                  sti_error_text(op.result));
    origin->fd = op.result;
    return 0;
}

int
sti_origin_open(struct sti_origin *origin, const struct sti_dataset *dataset, bool is_buffered,
                stk_error *err)
{
    struct sti_extent extent;
    int rc = sti_dataset_extent(dataset, 0, &extent);

    *origin = (struct sti_origin){.dataset = dataset, .dio = sti_dio_buffered(), .fd = -1};
    origin->is_one_file = sti_dataset_is_one_file(dataset);
    if (rc < 0)
        return sti_error_set(err, rc, "the index was changed while it is in use");
    if (!is_buffered) {
        rc = sti_dio_probe(sti_dataset_dir_fd(dataset), extent.path, &origin->dio);
        /* A first file that has vanished is a bad sample, to be met when it is read. */
        if (rc < 0 && origin->is_one_file)
            return sti_error_set_path(err, rc, extent.path, "the data set cannot be opened: %s",
                                      sti_error_text(rc));
    }
    return origin->is_one_file ? open_one_file(origin, extent.path, err) : 0;
}

void
sti_origin_close(struct sti_origin *origin)
{
    if (origin->fd < 0)
        return;
    struct sti_aio_op op = {.kind = STI_AIO_CLOSE, .fd = origin->fd};
    sti_aio_op_execute(&op); /* read only: a failure loses nothing */
    origin->fd = -1;
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
sti_origin_cover(const struct sti_origin *origin, uint64_t offset, uint64_t length)
{
    uint64_t block_bytes = origin->dio.block_bytes;
    struct sti_origin_range range;

    range.skew = offset % block_bytes;
    range.offset = offset - range.skew;
    uint64_t end = offset + length + (origin->is_one_file ? 0 : 1);
    range.n_bytes = (end + block_bytes - 1) / block_bytes * block_bytes - range.offset;
    return range;
}

void
sti_origin_prepare(const struct sti_origin *origin, const struct sti_extent *extent,
                   const struct sti_origin_range *range, void *bytes, struct sti_aio_op *op)
{
    op->kind = origin->is_one_file ? STI_AIO_READ : STI_AIO_READ_FILE;
    op->fd = origin->fd;
    op->dir_fd = sti_dataset_dir_fd(origin->dataset);
    op->path = extent->path;
    op->open_flags = origin->dio.is_direct ? O_DIRECT : 0u;
    op->bytes = bytes;
    op->offset = range->offset;
    op->n_bytes = (uint32_t)range->n_bytes;
    op->is_shaped = true;
}

int
sti_origin_check(const struct sti_origin *origin, const struct sti_origin_range *range,
                 uint64_t length, int32_t result)
{
    if (result < 0)
        return result;
    if ((uint64_t)result < range->skew + length)
        return -ENODATA;
    if (!origin->is_one_file && (uint64_t)result > range->skew + length)
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
    return sti_error_text(code);
}
