/* SPDX-License-Identifier: Apache-2.0 */
/* Codes of messages against the vectors of RFC 4231; any bit of one that differs is seen. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "comm/mac.h"

static void
digest_is(const unsigned char digest[STI_MAC_BYTES], const char *expected)
{
    char hex[2 * STI_MAC_BYTES + 1];

    for (int i = 0; i < STI_MAC_BYTES; i++)
        (void)snprintf(hex + 2 * i, 3, "%02x", digest[i]);
    assert_string_equal(hex, expected);
}

static void
mac_is(const void *key, size_t n_key, const char *text, const char *expected)
{
    unsigned char mac[STI_MAC_BYTES];
    struct hmac_sha256_ctx ctx;

    hmac_sha256_set_key(&ctx, n_key, key);
    for (int again = 0; again < 2; again++) { /* a key is not used up */
        sti_mac(&ctx, text, strlen(text), sizeof(mac), mac);
        digest_is(mac, expected);
    }
    for (size_t n = 1; n <= sizeof(mac); n++) {
        assert_true(sti_mac_is(&ctx, text, strlen(text), n, mac));
        mac[n - 1] ^= 1;
        assert_false(sti_mac_is(&ctx, text, strlen(text), n, mac));
        mac[n - 1] ^= 1;
    }
}

static void
test_hmac(void **state)
{
    unsigned char key[131];

    (void)state;
    memset(key, 0x0b, 20);
    mac_is(key, 20, "Hi There", "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
    mac_is("Jefe", 4, "what do ya want for nothing?",
           "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
    memset(key, 0xaa, sizeof(key));
    mac_is(key, sizeof(key), "Test Using Larger Than Block-Size Key - Hash Key First",
           "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
    mac_is("", 0, "", "b613679a0814d9ec772f95d778c35fc5ff1697c493715653c6c712144292c5ad");
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hmac),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
