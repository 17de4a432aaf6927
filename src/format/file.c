/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One file. Where sample i begins is data_offset + i x stride, so no table is needed; all
 * that is checked is that the file is exactly what its format says, since a remainder
 * means that it is cut off or that an option is wrong. Labels are read once, into the
 * index.
 */
#include "format/file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/mem.h"
#include "format/array.h"
#include "format/options.h"
#include "format/time.h"
#include "io/aio.h"

#define SAMPLES_MAX (UINT64_C(1) << 48)
#define LABELS_STEP_BYTES ((uint32_t)1 << 20)

typedef unsigned long long ull;

/* Reads up to n_bytes of a file's beginning. Returns how many, or a negative code. */
static int32_t
read_head(struct sti_aio *aio, const struct sti_file *file, void *bytes, uint32_t n_bytes)
{
    struct sti_aio_op op = {.kind = STI_AIO_READ_FILE,
                            .dir_fd = file->dir_fd,
                            .path = file->name,
                            .bytes = bytes,
                            .n_bytes = n_bytes};

    return sti_aio_run(aio, &op);
}

static int
parse_array(struct sti_array *ret_array, uint32_t format, const void *bytes, size_t n_bytes,
            const struct sti_file *file, stk_error *err)
{
    int rc;

    if (sti_array_recognise(bytes, n_bytes) == STI_ARRAY_GZIP)
        return sti_error_set_path(err, -EINVAL, file->shown,
                                  "the file is compressed, so its samples cannot be read one by "
                                  "one; run: gunzip -k FILE");
    if (sti_array_recognise(bytes, n_bytes) == STI_ARRAY_ZIP)
        return sti_error_set_path(err, -EINVAL, file->shown,
                                  "the file is an archive (.npz); run: unzip FILE, and use the "
                                  ".npy file inside");
    if (format == STK_FORMAT_NPY)
        rc = sti_array_parse_npy(ret_array, bytes, n_bytes, file->shown, err);
    else
        rc = sti_array_parse_idx(ret_array, bytes, n_bytes, file->shown, err);
    if (rc < 0)
        return rc;
    uint64_t wanted = ret_array->data_offset + ret_array->n_bytes;
    if (wanted != file->n_bytes)
        return sti_error_set_path(
            err, -EINVAL, file->shown, "the file is %s: its head promises %llu bytes, it has %llu",
            file->n_bytes < wanted ? "cut off" : "too long", (ull)wanted, (ull)file->n_bytes);
    return 0;
}

/* Rows of an array as samples. */
static int
plan_array(struct sti_index_head *head, const void *bytes, size_t n_bytes,
           const struct sti_file *file, stk_error *err)
{
    struct sti_array array = {0};
    int rc = parse_array(&array, head->format, bytes, n_bytes, file, err);

    if (rc < 0)
        return rc;
    if (array.n_elements == 0)
        return sti_error_set_path(err, -EINVAL, file->shown,
                                  "the data set is empty: a dimension of the array is 0");
    head->samples = array.shape[0];
    head->data_offset = array.data_offset;
    head->uniform_bytes = array.n_bytes / array.shape[0];
    head->stride_bytes = head->uniform_bytes;
    memcpy(head->dtype, array.dtype, sizeof(head->dtype));
    if (array.dims - 1 <= STK_MAX_DIMS) {
        head->dims = array.dims - 1;
        memcpy(head->shape, array.shape + 1, head->dims * sizeof(array.shape[0]));
    }
    return 0;
}

static int
plan_records(struct sti_index_head *head, const struct sti_file *file, const stk_dataset_opts *opts,
             stk_error *err)
{
    uint64_t body = file->n_bytes - opts->header_bytes;
    uint64_t record = opts->record_bytes;

    if (body % record != 0)
        return sti_error_set_path(err, -EINVAL, file->shown,
                                  "%llu bytes remain behind %llu records of %llu bytes and a "
                                  "header of %llu: the file is cut off, or record_bytes or "
                                  "header_bytes is wrong",
                                  (ull)(body % record), (ull)(body / record), (ull)record,
                                  (ull)opts->header_bytes);
    head->samples = body / record;
    head->dims = 1;
    head->shape[0] = record;
    memcpy(head->dtype, "|u1", 3);
    return 0;
}

static int
plan_windows(struct sti_index_head *head, const struct sti_file *file, const stk_dataset_opts *opts,
             stk_error *err)
{
    uint64_t body = file->n_bytes - opts->header_bytes;
    uint64_t tokens = body / opts->token_bytes;

    if (body % opts->token_bytes != 0)
        return sti_error_set_path(err, -EINVAL, file->shown,
                                  "%llu bytes remain behind %llu tokens of %u bytes and a header "
                                  "of %llu: the file is cut off, or token_bytes or header_bytes "
                                  "is wrong",
                                  (ull)(body % opts->token_bytes), (ull)tokens, opts->token_bytes,
                                  (ull)opts->header_bytes);
    if (opts->window_tokens > tokens)
        return sti_error_set_path(err, -EINVAL, file->shown,
                                  "a window of %llu tokens is longer than the file, which has "
                                  "%llu",
                                  (ull)opts->window_tokens, (ull)tokens);
    head->samples = (tokens - opts->window_tokens) / opts->stride_tokens + 1;
    return 0;
}

/* Where samples lie, for the formats that only the options describe. */
static int
plan_ranges(struct sti_index_head *head, const struct sti_file *file, const stk_dataset_opts *opts,
            stk_error *err)
{
    if (file->n_bytes <= opts->header_bytes)
        return sti_error_set_path(err, -EINVAL, file->shown,
                                  "the data set is empty: the file has %llu bytes, its header "
                                  "should have %llu",
                                  (ull)file->n_bytes, (ull)opts->header_bytes);
    head->data_offset = opts->header_bytes;
    head->uniform_bytes = sti_options_sample_bytes(opts);
    head->stride_bytes = sti_options_stride_bytes(opts);
    if (head->format == STK_FORMAT_RECORD)
        return plan_records(head, file, opts, err);
    return plan_windows(head, file, opts, err);
}

static int
refuse_unknown(const struct sti_file *file, stk_error *err)
{
    return sti_error_set_path(err, -EINVAL, file->shown,
                              "the file is neither .npy nor IDX; for fixed-size records set "
                              "format record and record_bytes, for tokens set format window and "
                              "window_tokens");
}

static int
plan(struct sti_index_head *head, struct sti_aio *aio, const struct sti_file *file,
     const stk_dataset_opts *opts, stk_error *err)
{
    void *bytes = sti_mem_new(STI_ARRAY_HEAD_MAX, 1);

    if (!bytes)
        return sti_error_set_path(err, -ENOMEM, file->shown, "no memory to read the file's head");
    int32_t n = read_head(aio, file, bytes, STI_ARRAY_HEAD_MAX);
    int rc = n;
    if (n < 0) {
        (void)sti_error_set_path(err, n, file->shown, "cannot read: %s", sti_error_text(n));
    } else {
        enum sti_array_file kind = sti_array_recognise(bytes, (size_t)n);

        head->auto_format = kind == STI_ARRAY_NPY   ? STK_FORMAT_NPY
                            : kind == STI_ARRAY_IDX ? STK_FORMAT_IDX
                                                    : STK_FORMAT_AUTO;
        head->format = opts->format ? opts->format : head->auto_format;
        if (head->format == STK_FORMAT_RECORD || head->format == STK_FORMAT_WINDOW)
            rc = plan_ranges(head, file, opts, err);
        else if (head->format == STK_FORMAT_AUTO && kind == STI_ARRAY_NONE)
            rc = refuse_unknown(file, err);
        else
            rc = plan_array(head, bytes, (size_t)n, file, err);
    }
    sti_mem_free(bytes);
    if (rc >= 0 && head->samples > SAMPLES_MAX)
        return sti_error_set_path(err, -E2BIG, file->shown, "there are more than 2^48 samples");
    return rc < 0 ? rc : 0;
}

int
sti_file_stat_labels(struct sti_aio *aio, const char *path, struct sti_file *ret_file,
                     stk_error *err)
{
    struct statx found;
    struct sti_aio_op op = {.kind = STI_AIO_STATX,
                            .dir_fd = AT_FDCWD,
                            .path = path,
                            .statx = &found,
                            .statx_mask = STATX_TYPE | STATX_MODE | STATX_SIZE | STATX_MTIME};
    int rc = sti_aio_run(aio, &op);

    if (rc < 0)
        return sti_error_set_path(err, rc, path, "cannot look at the labels file: %s",
                                  sti_error_text(rc));
    if (!S_ISREG(found.stx_mode))
        return sti_error_set_path(err, -EINVAL, path, "the labels file is no regular file");
    *ret_file = (struct sti_file){.dir_fd = AT_FDCWD,
                                  .name = path,
                                  .shown = path,
                                  .n_bytes = found.stx_size,
                                  .mtime_ns = sti_time_ns(&found.stx_mtime)};
    return 0;
}

/* The labels file's shape; buffer has room for its head. */
static int
parse_labels(struct sti_array *ret_array, struct sti_aio *aio, const struct sti_file *file,
             uint64_t samples, unsigned char *buffer, stk_error *err)
{
    int64_t value = 0;
    int32_t n = read_head(aio, file, buffer, STI_ARRAY_HEAD_MAX);

    if (n < 0)
        return sti_error_set_path(err, n, file->shown, "cannot read the labels file: %s",
                                  sti_error_text(n));
    bool is_npy = sti_array_recognise(buffer, (size_t)n) == STI_ARRAY_NPY;
    int rc = parse_array(ret_array, is_npy ? STK_FORMAT_NPY : STK_FORMAT_IDX, buffer, (size_t)n,
                         file, err);
    if (rc < 0)
        return rc;
    if (ret_array->n_elements != samples)
        return sti_error_set_path(err, -EINVAL, file->shown,
                                  "the labels file has %llu values for %llu samples",
                                  (ull)ret_array->n_elements, (ull)samples);
    if (sti_array_get_integer(ret_array, (const unsigned char *)"\0\0\0\0\0\0\0", &value) < 0)
        return sti_error_set_path(err, -EINVAL, file->shown,
                                  "the labels are no integers but \"%s\"", ret_array->dtype);
    return 0;
}

static int
put_labels(struct sti_index_writer *writer, struct sti_aio *aio, const struct sti_file *file,
           const struct sti_array *array, unsigned char *buffer, stk_error *err)
{
    uint32_t width = array->element_bytes;
    struct sti_aio_op op = {
        .kind = STI_AIO_READ_FILE, .dir_fd = file->dir_fd, .path = file->name, .bytes = buffer};

    for (uint64_t at = 0; at < array->n_elements;) {
        uint64_t left = (array->n_elements - at) * width;

        op.offset = array->data_offset + at * width;
        op.n_bytes = left < LABELS_STEP_BYTES ? (uint32_t)left : LABELS_STEP_BYTES;
        int32_t n = sti_aio_run(aio, &op);
        if (n < 0 || (uint32_t)n < width)
            return sti_error_set_path(err, n < 0 ? n : -EIO, file->shown,
                                      "cannot read the labels file at byte %llu: %s",
                                      (ull)op.offset, n < 0 ? sti_error_text(n) : "it ends");
        for (uint32_t i = 0; i + width <= (uint32_t)n; i += width, at++) {
            int64_t label;

            if (sti_array_get_integer(array, buffer + i, &label) < 0)
                return sti_error_set_path(err, -EINVAL, file->shown,
                                          "label %llu is beyond 2^63 - 1", (ull)at);
            sti_index_put_label(writer, at, label);
        }
    }
    return 0;
}

static void
put_sources(struct sti_index_writer *writer, const struct sti_file *data,
            const struct sti_file *labels)
{
    struct sti_index_source source = {.path = data->name,
                                      .kind = STI_INDEX_DATA,
                                      .mtime_ns = data->mtime_ns,
                                      .n_bytes = data->n_bytes};

    sti_index_put_source(writer, 0, &source);
    if (!labels->name)
        return;
    source = (struct sti_index_source){.path = "",
                                       .kind = STI_INDEX_LABELS,
                                       .mtime_ns = labels->mtime_ns,
                                       .n_bytes = labels->n_bytes};
    sti_index_put_source(writer, 1, &source);
}

static int
put_all(struct sti_index_writer *writer, struct sti_aio *aio, const struct sti_file *data,
        const struct sti_file *labels, unsigned char *buffer, stk_error *err)
{
    struct sti_array array = {0};
    int rc = 0;

    if (labels->name)
        rc = parse_labels(&array, aio, labels, writer->head.samples, buffer, err);
    if (rc < 0)
        return rc;
    struct sti_index_head head = writer->head;
    if (sti_index_writer_init(writer, &head) < 0)
        return sti_error_set_path(err, -ENOMEM, data->shown, "no memory for the index");
    if (labels->name)
        rc = put_labels(writer, aio, labels, &array, buffer, err);
    if (rc < 0)
        return rc;
    sti_index_put_fingerprint(writer);
    put_sources(writer, data, labels);
    rc = sti_index_seal(writer);
    if (rc < 0)
        return sti_error_set_path(err, rc, data->shown, "the samples add up to more than 2^63");
    return 0;
}

int
sti_file_index(struct sti_index_writer *writer, struct sti_aio *aio, const struct sti_file *file,
               const stk_dataset_opts *opts, stk_error *err)
{
    struct sti_index_head *head = &writer->head;
    struct sti_file labels = {.name = NULL};
    unsigned char *buffer = NULL;

    memset(writer, 0, sizeof(*writer));
    int rc = plan(head, aio, file, opts, err);
    if (rc == 0 && opts->labels_path)
        rc = sti_file_stat_labels(aio, opts->labels_path, &labels, err);
    if (rc < 0)
        return rc;
    head->options_hash = sti_options_hash(opts, head->format);
    head->home_source = STI_INDEX_NO_HOME;
    head->has_labels = labels.name != NULL;
    head->sources = labels.name ? 2 : 1;
    head->names_bytes = strlen(file->name) + 1 + (labels.name ? 1 : 0);
    if (labels.name) {
        buffer = sti_mem_new(LABELS_STEP_BYTES, 1);
        if (!buffer)
            return sti_error_set_path(err, -ENOMEM, labels.shown, "no memory to read labels");
    }
    rc = put_all(writer, aio, file, &labels, buffer, err);
    sti_mem_free(buffer);
    return rc;
}
