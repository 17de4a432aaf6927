/* SPDX-License-Identifier: Apache-2.0 */
/* UTF-8, byte by byte. Pure. */
#include "base/utf8.h"

#include <stdint.h>

/* How many bytes follow a first byte, and what its own bits are; -1 for no first byte. */
static int
tail_of(unsigned char first, uint32_t *ret_bits)
{
    if (first < 0x80) {
        *ret_bits = first;
        return 0;
    }
    if (first >= 0xc2 && first <= 0xdf) {
        *ret_bits = first & 0x1f;
        return 1;
    }
    if (first >= 0xe0 && first <= 0xef) {
        *ret_bits = first & 0x0f;
        return 2;
    }
    if (first >= 0xf0 && first <= 0xf4) {
        *ret_bits = first & 0x07;
        return 3;
    }
    return -1;
}

bool
sti_utf8_is_valid(const char *value)
{
    static const uint32_t least[] = {0, 0x80, 0x800, 0x10000};

    while (*value) {
        uint32_t code = 0;
        int n_tail = tail_of((unsigned char)*value++, &code);

        if (n_tail < 0)
            return false;
        for (int at = 0; at < n_tail; at++) {
            unsigned char byte = (unsigned char)*value;

            if ((byte & 0xc0) != 0x80)
                return false;
            code = code << 6 | (byte & 0x3f);
            value++;
        }
        if (code < least[n_tail] || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff))
            return false;
    }
    return true;
}
