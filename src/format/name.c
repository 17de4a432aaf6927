/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names. Python sorts decoded names; bytes sort the same way as long as both are valid
 * UTF-8, which is what UTF-8 was made for. A byte that is not valid becomes a lone
 * surrogate, which sorts below U+E000 and everything behind it although the byte itself
 * is greater, so only where bytes beyond ASCII are involved is anything decoded. Pure;
 * any thread.
 */
#include "format/name.h"

#include <stdint.h>
#include <string.h>
#include <strings.h>

/* The length of the valid sequence that begins with lead, by its lead byte; 0 if none
 * does. The range of the second byte keeps out overlong forms, surrogates and what is
 * beyond U+10FFFF. */
static unsigned
sequence_length(unsigned char lead, unsigned char *ret_low, unsigned char *ret_high)
{
    *ret_low = 0x80;
    *ret_high = 0xbf;
    if (lead >= 0xc2 && lead <= 0xdf)
        return 2;
    if (lead >= 0xe0 && lead <= 0xef) {
        if (lead == 0xe0)
            *ret_low = 0xa0;
        if (lead == 0xed)
            *ret_high = 0x9f;
        return 3;
    }
    if (lead >= 0xf0 && lead <= 0xf4) {
        if (lead == 0xf0)
            *ret_low = 0x90;
        if (lead == 0xf4)
            *ret_high = 0x8f;
        return 4;
    }
    return 0;
}

/* Takes one code point off the text; 0 at its end. */
static uint32_t
next_code_point(const unsigned char **text)
{
    const unsigned char *at = *text;
    unsigned char low, high;

    if (*at < 0x80) {
        *text += *at != 0;
        return *at;
    }
    unsigned n = sequence_length(*at, &low, &high);
    *text += 1;
    if (n == 0 || at[1] < low || at[1] > high)
        return 0xdc00u + *at;
    uint32_t code = (uint32_t)*at & (0x7fu >> n);
    code = code << 6 | (at[1] & 0x3fu);
    for (unsigned i = 2; i < n; i++) {
        if ((at[i] & 0xc0) != 0x80)
            return 0xdc00u + *at;
        code = code << 6 | (at[i] & 0x3fu);
    }
    *text = at + n;
    return code;
}

int
sti_name_compare_text(const char *a, const char *b)
{
    const unsigned char *left = (const unsigned char *)a;
    const unsigned char *right = (const unsigned char *)b;
    size_t i = 0;

    while (left[i] == right[i] && left[i])
        i++;
    /* What is before two ASCII bytes decodes the same on both sides. */
    if (left[i] < 0x80 && right[i] < 0x80)
        return (int)left[i] - (int)right[i];
    for (;;) {
        uint32_t code_a = next_code_point(&left);
        uint32_t code_b = next_code_point(&right);

        if (code_a != code_b)
            return code_a < code_b ? -1 : 1;
        if (code_a == 0)
            return 0;
    }
}

bool
sti_name_has_ending(const char *name, size_t name_bytes, const char *endings)
{
    for (const char *at = endings; *at;) {
        size_t n = strcspn(at, " \t\n");

        if (n == 1 && *at == '*')
            return true;
        if (n > 0 && n <= name_bytes && strncasecmp(name + name_bytes - n, at, n) == 0)
            return true;
        at += n;
        at += strspn(at, " \t\n");
    }
    return false;
}

bool
sti_name_is_index(const char *name)
{
    const size_t n_index = sizeof(STI_NAME_INDEX) - 1;
    const size_t n = strlen(name);

    if (n >= n_index && strcmp(name + n - n_index, STI_NAME_INDEX) == 0)
        return true;
    return strncmp(name, STI_NAME_INDEX ".", n_index + 1) == 0 && n > n_index + 4 &&
           strcmp(name + n - 4, ".tmp") == 0;
}
