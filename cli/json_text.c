/* SPDX-License-Identifier: Apache-2.0 */
/* Text of the system in JSON. */
#include "json_text.h"

#include <stdlib.h>
#include <string.h>

json_t *
cli_json_text(const char *text)
{
    static const char replacement[] = "\xEF\xBF\xBD"; /* U+FFFD */
    const size_t n_replacement = sizeof(replacement) - 1;
    json_t *string = json_string(text);
    size_t n = 0;

    if (string)
        return string;
    char *shown = malloc(strlen(text) * n_replacement + 1);
    if (!shown)
        return NULL;
    for (const char *byte = text; *byte; byte++)
        if ((unsigned char)*byte < 0x80) {
            shown[n++] = *byte;
        } else {
            memcpy(shown + n, replacement, n_replacement);
            n += n_replacement;
        }
    string = json_stringn(shown, n);
    free(shown);
    return string;
}
