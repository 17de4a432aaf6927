/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The head of a .npy file: "\x93NUMPY", a major and a minor version, the length of what
 * follows (16 bit in version 1, 32 bit in 2 and 3), and the text of a Python dictionary
 * with exactly the keys descr, fortran_order and shape (NEP 1). The text is read by a
 * cursor that cannot leave it; anything unexpected ends in "damaged". Pure; any thread.
 */
#include "format/array.h"

#include <errno.h>
#include <string.h>

#include "base/error.h"
#include "format/array_internal.h"

struct cursor {
    const char *at;
    const char *end;
};

/* What the dictionary said. */
struct npy_words {
    const char *descr; /* inside the text, not terminated; NULL: no plain string */
    size_t descr_bytes;
    bool has_descr, has_order, has_shape;
    bool fortran_order;
    bool too_many_dims;
};

static void
skip_blanks(struct cursor *text)
{
    while (text->at < text->end && strchr(" \t\r\n", *text->at) && *text->at)
        text->at++;
}

static bool
take(struct cursor *text, char wanted)
{
    skip_blanks(text);
    if (text->at >= text->end || *text->at != wanted)
        return false;
    text->at++;
    return true;
}

/* Takes a string in either kind of quotes, without escapes: NumPy writes none here. */
static bool
take_string(struct cursor *text, const char **ret_string, size_t *ret_bytes)
{
    skip_blanks(text);
    if (text->at >= text->end || (*text->at != '\'' && *text->at != '"'))
        return false;
    char quote = *text->at++;
    const char *close = memchr(text->at, quote, (size_t)(text->end - text->at));
    if (!close || memchr(text->at, '\\', (size_t)(close - text->at)))
        return false;
    *ret_string = text->at;
    *ret_bytes = (size_t)(close - text->at);
    text->at = close + 1;
    return true;
}

static bool
take_word(struct cursor *text, const char *word)
{
    size_t n = strlen(word);

    skip_blanks(text);
    if ((size_t)(text->end - text->at) < n || memcmp(text->at, word, n) != 0)
        return false;
    text->at += n;
    return true;
}

/* A number below 2^63, with the L that Python 2 has appended. */
static bool
take_number(struct cursor *text, uint64_t *ret_number)
{
    uint64_t number = 0;
    const char *begin;

    skip_blanks(text);
    for (begin = text->at; text->at < text->end && *text->at >= '0' && *text->at <= '9';) {
        if (number > (INT64_MAX - 9) / 10)
            return false;
        number = number * 10 + (uint64_t)(*text->at++ - '0');
    }
    if (text->at == begin)
        return false;
    if (text->at < text->end && *text->at == 'L')
        text->at++;
    *ret_number = number;
    return true;
}

static bool
take_shape(struct cursor *text, struct sti_array *array, struct npy_words *words)
{
    uint64_t number;

    if (!take(text, '('))
        return false;
    while (!take(text, ')')) {
        if (!take_number(text, &number))
            return false;
        if (array->dims == STI_ARRAY_MAX_DIMS)
            words->too_many_dims = true;
        else
            array->shape[array->dims++] = number;
        if (!take(text, ',') && (text->at >= text->end || *text->at != ')'))
            return false;
    }
    return true;
}

/* A description that is no plain string is a list: fields with names. It is skipped up to
 * its end by counting brackets; quoted text may hold some, which only makes the head
 * "damaged". */
static bool
skip_list(struct cursor *text)
{
    uint32_t depth = 0;

    skip_blanks(text);
    for (; text->at < text->end; text->at++) {
        if (*text->at == '[' || *text->at == '(')
            depth++;
        else if (depth > 0 && (*text->at == ']' || *text->at == ')') && --depth == 0) {
            text->at++;
            return true;
        } else if (depth == 0)
            return false;
    }
    return false;
}

static bool
take_pair(struct cursor *text, struct sti_array *array, struct npy_words *words)
{
    const char *key;
    size_t n;

    if (!take_string(text, &key, &n) || !take(text, ':'))
        return false;
    if (n == 5 && memcmp(key, "descr", n) == 0 && !words->has_descr) {
        words->has_descr = true;
        return take_string(text, &words->descr, &words->descr_bytes) || skip_list(text);
    }
    if (n == 13 && memcmp(key, "fortran_order", n) == 0 && !words->has_order) {
        words->has_order = true;
        words->fortran_order = take_word(text, "True");
        return words->fortran_order || take_word(text, "False");
    }
    if (n == 5 && memcmp(key, "shape", n) == 0 && !words->has_shape) {
        words->has_shape = true;
        return take_shape(text, array, words);
    }
    return false;
}

static bool
take_dictionary(struct cursor *text, struct sti_array *array, struct npy_words *words)
{
    if (!take(text, '{'))
        return false;
    while (!take(text, '}')) {
        if (!take_pair(text, array, words))
            return false;
        if (!take(text, ',') && (text->at >= text->end || *text->at != '}'))
            return false;
    }
    return words->has_descr && words->has_order && words->has_shape;
}

/* A type string: byte order, kind, bytes (characters of 4 bytes for U), unit of a
 * time. */
static bool
take_dtype(const struct npy_words *words, struct sti_array *array)
{
    struct cursor text = {.at = words->descr, .end = words->descr + words->descr_bytes};
    uint64_t n_bytes;

    if (words->descr_bytes < 3 || !strchr("<>|=", text.at[0]) || !strchr("biufcSUVmM", text.at[1]))
        return false;
    array->big_endian = text.at[0] == '>';
    array->kind = text.at[1];
    text.at += 2;
    if (!take_number(&text, &n_bytes) || n_bytes == 0 || n_bytes > UINT32_MAX / 4)
        return false;
    array->element_bytes = (uint32_t)n_bytes * (array->kind == 'U' ? 4 : 1);
    if (text.at < text.end && (*text.at != '[' || !strchr("mM", array->kind)))
        return false;
    if (words->descr_bytes < sizeof(array->dtype))
        memcpy(array->dtype, words->descr, words->descr_bytes);
    return true;
}

/* Finds the dictionary's text; false where the file is too short for it. */
static bool
find_text(const unsigned char *at, size_t n_bytes, struct cursor *ret_text)
{
    size_t skip = at[6] == 1 ? 10 : 12;

    if (n_bytes < skip)
        return false;
    size_t length = (size_t)at[8] | (size_t)at[9] << 8;
    if (skip == 12)
        length |= (size_t)at[10] << 16 | (size_t)at[11] << 24;
    if (length > n_bytes - skip)
        return false;
    ret_text->at = (const char *)at + skip;
    ret_text->end = ret_text->at + length;
    return true;
}

static int
check_words(const struct npy_words *words, struct sti_array *array, const char *path,
            stk_error *err)
{
    if (words->fortran_order)
        return sti_error_set_path(err, -EINVAL, path,
                                  "the array is in Fortran order, so its rows are not in one "
                                  "piece; save it again with "
                                  "numpy.save(path, numpy.ascontiguousarray(array))");
    if (words->descr && memchr(words->descr, 'O', words->descr_bytes))
        return sti_error_set_path(err, -EINVAL, path,
                                  "the array holds Python objects, which only Python can read; "
                                  "save it again with a numeric type: array.astype(...)");
    if (!words->descr || !take_dtype(words, array))
        return sti_error_set_path(err, -EINVAL, path,
                                  "the array's type is not a plain one (\"<f4\", \"|u1\"); save "
                                  "each field as an array of its own");
    if (words->too_many_dims)
        return sti_error_set_path(err, -EINVAL, path, "the array has more than %d dimensions",
                                  STI_ARRAY_MAX_DIMS);
    if (array->dims == 0)
        return sti_error_set_path(err, -EINVAL, path,
                                  "the array is a single value, without rows to read");
    if (!array_count(array))
        return sti_error_set_path(err, -EINVAL, path, "the array's shape multiplies to too much");
    return 0;
}

int
sti_array_parse_npy(struct sti_array *ret_array, const void *head, size_t n_bytes, const char *path,
                    stk_error *err)
{
    const unsigned char *at = head;
    struct sti_array array = {0};
    struct npy_words words = {0};
    struct cursor text;

    if (n_bytes < 10 || sti_array_recognise(head, n_bytes) != STI_ARRAY_NPY)
        return sti_error_set_path(err, -EINVAL, path,
                                  "not a .npy file: it should begin with \\x93NUMPY");
    if (at[6] < 1 || at[6] > 3)
        return sti_error_set_path(err, -EINVAL, path,
                                  ".npy version %u.%u is unknown; versions 1 to 3 can be read",
                                  at[6], at[7]);
    if (!find_text(at, n_bytes, &text))
        return sti_error_set_path(err, -EINVAL, path,
                                  "the .npy head is cut off, or longer than %d bytes",
                                  STI_ARRAY_HEAD_MAX);
    array.data_offset = (uint64_t)(text.end - (const char *)at);
    if (!take_dictionary(&text, &array, &words))
        return sti_error_set_path(err, -EINVAL, path, "the .npy head is damaged");
    int rc = check_words(&words, &array, path, err);
    if (rc < 0)
        return rc;
    *ret_array = array;
    return 0;
}
