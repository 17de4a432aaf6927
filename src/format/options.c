/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Options. An option that the format does not have is refused rather than ignored: it
 * shows that somebody expects something else. Pure; any thread.
 */
#include "format/options.h"

#include <errno.h>
#include <string.h>

#include "base/error.h"
#include "format/hash.h"
#include "format/name.h"
#include "format/shard.h"

#define SAMPLE_BYTES_MAX (UINT64_C(1) << 40)
#define TOKEN_BYTES_MAX 64
#define BLANKS " \t\n"

static int
refuse(stk_error *err, const char *option, const char *belongs_to)
{
    return sti_error_set(err, -EINVAL, "%s is an option of %s; set format accordingly", option,
                         belongs_to);
}

/* Options that do not belong to the format. */
static int
check_strangers(const stk_dataset_opts *opts, stk_error *err)
{
    uint32_t format = opts->format;
    bool is_folder = format == STK_FORMAT_CLASS_FOLDER || format == STK_FORMAT_FOLDER;
    bool is_array = format == STK_FORMAT_NPY || format == STK_FORMAT_IDX;
    bool is_auto = format == STK_FORMAT_AUTO;

    if (opts->record_bytes && format != STK_FORMAT_RECORD)
        return refuse(err, "record_bytes", "format record");
    if ((opts->window_tokens || opts->stride_tokens || opts->token_bytes) &&
        format != STK_FORMAT_WINDOW)
        return refuse(err, "window_tokens, stride_tokens or token_bytes", "format window");
    if (opts->header_bytes && format != STK_FORMAT_RECORD && format != STK_FORMAT_WINDOW)
        return refuse(err, "header_bytes", "formats record and window");
    if (opts->labels_path && !is_array && !is_auto && format != STK_FORMAT_RECORD)
        return refuse(err, "labels_path", "formats record, npy and idx");
    if (opts->extensions && !is_folder && !is_auto)
        return refuse(err, "extensions", "class folders and folders");
    if (opts->fields && format != STK_FORMAT_TAR && !is_auto)
        return refuse(err, "fields", "format tar");
    return 0;
}

static int
check_sizes(stk_dataset_opts *opts, stk_error *err)
{
    if (opts->format == STK_FORMAT_RECORD &&
        (opts->record_bytes == 0 || opts->record_bytes > SAMPLE_BYTES_MAX))
        return sti_error_set(err, -EINVAL, "record_bytes is %llu; format record needs 1 .. 2^40",
                             (unsigned long long)opts->record_bytes);
    if (opts->header_bytes > INT64_MAX / 2)
        return sti_error_set(err, -EINVAL, "header_bytes is %llu; 0 .. 2^62 is allowed",
                             (unsigned long long)opts->header_bytes);
    if (opts->format != STK_FORMAT_WINDOW)
        return 0;
    if (opts->token_bytes == 0)
        opts->token_bytes = 2;
    if (opts->stride_tokens == 0)
        opts->stride_tokens = opts->window_tokens;
    if (opts->token_bytes > TOKEN_BYTES_MAX)
        return sti_error_set(err, -EINVAL, "token_bytes is %u; 1 .. %d is allowed",
                             opts->token_bytes, TOKEN_BYTES_MAX);
    if (opts->window_tokens == 0 || opts->window_tokens > SAMPLE_BYTES_MAX / opts->token_bytes)
        return sti_error_set(err, -EINVAL,
                             "window_tokens is %llu; format window needs 1 or more, and at most "
                             "2^40 bytes",
                             (unsigned long long)opts->window_tokens);
    if (opts->stride_tokens > SAMPLE_BYTES_MAX / opts->token_bytes)
        return sti_error_set(err, -EINVAL, "stride_tokens is %llu; at most 2^40 bytes are allowed",
                             (unsigned long long)opts->stride_tokens);
    return 0;
}

/* Names of fields: not too many, none twice or too long. */
static int
check_fields(const char *fields, stk_error *err)
{
    uint32_t n = 0;

    for (const char *at = fields + strspn(fields, BLANKS); *at; at += strspn(at, BLANKS)) {
        size_t n_bytes = strcspn(at, BLANKS);

        if (n_bytes >= STI_SHARD_FIELD_SIZE || n == STK_MAX_FIELDS)
            return sti_error_set(err, -EINVAL,
                                 "fields names more than %d fields, or one of 64 bytes or more: "
                                 "\"%.64s\"",
                                 STK_MAX_FIELDS, at);
        for (const char *other = fields; other < at; other += strspn(other, BLANKS)) {
            size_t other_bytes = strcspn(other, BLANKS);

            if (other_bytes == n_bytes && memcmp(other, at, n_bytes) == 0)
                return sti_error_set(err, -EINVAL, "fields has \"%.*s\" twice", (int)n_bytes, at);
            other += other_bytes;
        }
        at += n_bytes;
        n++;
    }
    return n > 0 ? 0 : sti_error_set(err, -EINVAL, "fields is empty; leave it out for all");
}

int
sti_options_check(stk_dataset_opts *ret_opts, const stk_dataset_opts *opts, stk_error *err)
{
    stk_dataset_opts checked = {STK_DATASET_OPTS_INIT};

    if (opts)
        checked = *opts;
    if (checked.format > STK_FORMAT_TAR)
        return sti_error_set(err, -EINVAL, "format is %u; 0 .. %d is allowed", checked.format,
                             STK_FORMAT_TAR);
    if (checked.rebuild > 1 || checked.reserved != 0)
        return sti_error_set(err, -EINVAL, "rebuild is 0 or 1, reserved is 0");
    if (checked.extensions && strspn(checked.extensions, " \t\n") == strlen(checked.extensions))
        return sti_error_set(err, -EINVAL,
                             "extensions is empty; leave it out, or \"*\" for every file");
    int rc = check_strangers(&checked, err);
    if (rc == 0)
        rc = check_sizes(&checked, err);
    if (rc == 0 && checked.fields)
        rc = check_fields(checked.fields, err);
    if (rc == 0)
        *ret_opts = checked;
    return rc;
}

uint64_t
sti_options_sample_bytes(const stk_dataset_opts *opts)
{
    if (opts->format == STK_FORMAT_WINDOW)
        return opts->window_tokens * opts->token_bytes;
    return opts->record_bytes;
}

uint64_t
sti_options_stride_bytes(const stk_dataset_opts *opts)
{
    if (opts->format == STK_FORMAT_WINDOW)
        return opts->stride_tokens * opts->token_bytes;
    return opts->record_bytes;
}

const char *
sti_options_endings(const stk_dataset_opts *opts, uint32_t format)
{
    if (opts->extensions)
        return opts->extensions;
    return format == STK_FORMAT_CLASS_FOLDER ? STI_NAME_IMAGE_ENDINGS : STI_NAME_ANY;
}

static uint64_t
hash_text(uint64_t hash, const char *text)
{
    return sti_hash(hash, text ? text : "", text ? strlen(text) + 1 : 0);
}

uint64_t
sti_options_hash(const stk_dataset_opts *opts, uint32_t format)
{
    uint64_t hash = sti_hash_u64(STI_HASH_START, format);

    hash = sti_hash_u64(hash, opts->header_bytes);
    hash = sti_hash_u64(hash, opts->record_bytes);
    hash = sti_hash_u64(hash, opts->window_tokens);
    hash = sti_hash_u64(hash, opts->stride_tokens);
    hash = sti_hash_u64(hash, opts->token_bytes);
    if (sti_index_is_one_file(format))
        return hash_text(hash, opts->labels_path);
    if (format == STK_FORMAT_TAR)
        return hash_text(hash, opts->fields);
    return hash_text(hash, sti_options_endings(opts, format));
}

bool
sti_options_match(const stk_dataset_opts *opts, const struct sti_index_head *head)
{
    uint32_t format = opts->format ? opts->format : head->auto_format;

    if (head->format == STK_FORMAT_TAR ? opts->extensions || opts->labels_path : !!opts->fields)
        return false; /* they cannot be meant for each other */

    return format == head->format && sti_options_hash(opts, format) == head->options_hash;
}
