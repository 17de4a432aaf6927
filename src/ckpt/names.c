/* SPDX-License-Identifier: Apache-2.0 */
/* Names on disk. Pure. */
#include "ckpt/names.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define SESSION_DIGITS 16

static const char *const endings[] = {
    [STI_NAME_OTHER] = "",      [STI_NAME_STEP] = "",      [STI_NAME_PARTS] = "",
    [STI_NAME_COMMIT] = ".tmp", [STI_NAME_GONE] = ".gone",
};

void
sti_name_id(char id[STI_ID_SIZE], uint64_t session, uint64_t serial)
{
    (void)snprintf(id, STI_ID_SIZE, "%016" PRIx64 "-%" PRIx64, session, serial); /* fits */
}

void
sti_name_make(char name[STI_NAME_SIZE], enum sti_name_kind kind, uint64_t step, const char *id)
{
    if (kind == STI_NAME_STEP)
        (void)snprintf(name, STI_NAME_SIZE, "step-%" PRIu64, step); /* fits */
    else
        (void)snprintf(name, STI_NAME_SIZE, "step-%" PRIu64 ".%s%s", step, id, endings[kind]);
}

void
sti_name_part(char name[STI_NAME_SIZE], uint32_t writer, uint32_t number, uint32_t n_parts)
{
    if (n_parts == 1)
        (void)snprintf(name, STI_NAME_SIZE, "model.safetensors"); /* fits */
    else
        (void)snprintf(name, STI_NAME_SIZE, "part-%" PRIu32 "-%" PRIu32 ".bin", writer, number);
}

/* Digits of a number without leading zeros; returns what follows, NULL where there is
 * none. */
static const char *
parse_step(const char *text, uint64_t *ret_step)
{
    uint64_t step = 0;
    const char *at = text;

    for (; *at >= '0' && *at <= '9'; at++)
        if (__builtin_mul_overflow(step, 10, &step) ||
            __builtin_add_overflow(step, (uint64_t)(*at - '0'), &step))
            return NULL;
    if (at == text || (*text == '0' && at != text + 1))
        return NULL;
    *ret_step = step;
    return at;
}

static size_t
hex_digits(const char *text)
{
    return strspn(text, "0123456789abcdef");
}

/* The length of the id that text begins with; 0 for none. */
static size_t
id_length(const char *text)
{
    if (hex_digits(text) != SESSION_DIGITS || text[SESSION_DIGITS] != '-')
        return 0;
    size_t serial_digits = hex_digits(text + SESSION_DIGITS + 1);
    if (serial_digits == 0 || serial_digits > 16)
        return 0;
    return SESSION_DIGITS + 1 + serial_digits;
}

bool
sti_name_is_id(const char *id)
{
    size_t length = id_length(id);

    return length > 0 && id[length] == '\0';
}

enum sti_name_kind
sti_name_parse(const char *name, uint64_t *ret_step, char id[STI_ID_SIZE])
{
    id[0] = '\0';
    if (strncmp(name, "step-", 5) != 0)
        return STI_NAME_OTHER;
    const char *at = parse_step(name + 5, ret_step);
    if (!at)
        return STI_NAME_OTHER;
    if (*at == '\0')
        return STI_NAME_STEP;
    size_t length = *at == '.' ? id_length(at + 1) : 0;
    if (length == 0)
        return STI_NAME_OTHER;
    memcpy(id, at + 1, length);
    id[length] = '\0';
    at += 1 + length;
    if (*at == '\0')
        return STI_NAME_PARTS;
    if (strcmp(at, endings[STI_NAME_COMMIT]) == 0)
        return STI_NAME_COMMIT;
    return strcmp(at, endings[STI_NAME_GONE]) == 0 ? STI_NAME_GONE : STI_NAME_OTHER;
}
