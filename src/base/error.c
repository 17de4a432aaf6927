/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Error values. A message is made where the failure is understood, into memory of the
 * caller, so nothing here allocates or keeps state; any thread may enter.
 */
#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct own_code {
    int code;
    const char *text;
};

static const struct own_code own_codes[] = {
    {STK_E_CORRUPT, "stored data is damaged"},
    {STK_E_VERSION, "stored data is of an unknown format version"},
    {STK_E_STALE, "the index no longer describes the data set"},
    {STK_E_MISMATCH, "two things that must belong together do not"},
    {STK_E_SAMPLE, "a sample cannot be read or decoded"},
    {STK_E_BORROW, "too many batches are borrowed"},
    {STK_E_INFEASIBLE, "the configuration cannot work"},
};

const char *
sti_error_text(int code)
{
    if (code == 0)
        return "success";
    for (size_t i = 0; i < sizeof(own_codes) / sizeof(own_codes[0]); i++)
        if (own_codes[i].code == code)
            return own_codes[i].text;
    if (code < -4095 || code > 4095)
        return "unknown error";
    const char *text = strerrordesc_np(code < 0 ? -code : code);
    return text ? text : "unknown error";
}

STI_PRINTF(5, 0)
static void
fill(stk_error *err, int code, uint64_t sample, const char *path, const char *format, va_list args)
{
    err->code = code;
    err->rank = -1;
    err->sample = sample;
    err->path[0] = '\0';
    if (path)
        (void)snprintf(err->path, sizeof(err->path), "%s", path); /* truncation is fine here */
    (void)vsnprintf(err->message, sizeof(err->message), format, args);
}

int
sti_error_set(stk_error *err, int code, const char *format, ...)
{
    if (err) {
        va_list args;

        va_start(args, format);
        fill(err, code, STK_NO_SAMPLE, NULL, format, args);
        va_end(args);
    }
    return code;
}

int
sti_error_set_path(stk_error *err, int code, const char *path, const char *format, ...)
{
    if (err) {
        va_list args;

        va_start(args, format);
        fill(err, code, STK_NO_SAMPLE, path, format, args);
        va_end(args);
    }
    return code;
}

int
sti_error_set_sample(stk_error *err, int code, uint64_t sample, const char *path,
                     const char *format, ...)
{
    if (err) {
        va_list args;

        va_start(args, format);
        fill(err, code, sample, path, format, args);
        va_end(args);
    }
    return code;
}
