#include "common/codec/base64.h"

static const char standard[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

void base64_encode(const void *bytes, size_t n, char *out)
{
    for (const uint8_t *p = bytes; n > 0; p += 3, n = n > 3 ? n - 3 : 0) {
        uint32_t v = (uint32_t)p[0] << 16;
        v |= n > 1 ? (uint32_t)p[1] << 8 : 0;
        v |= n > 2 ? p[2] : 0;
        *out++ = standard[v >> 18];
        *out++ = standard[v >> 12 & 63];
        *out++ = n > 1 ? standard[v >> 6 & 63] : '=';
        *out++ = n > 2 ? standard[v & 63] : '=';
    }
    *out = '\0';
}

static int base64_value(char c)
{
    const char *at = c != '\0' ? strchr(standard, c) : NULL;
    return at != NULL ? (int)(at - standard) : -1;
}

bool base64_decode(struct slice s, void *out, size_t room, size_t *n)
{
    uint8_t *to = out;
    size_t put = 0;

    if (s.n % 4 != 0) {
        return false;
    }
    for (size_t i = 0; i < s.n; i += 4) {
        bool last = i + 4 == s.n;
        int pads = last ? (s.p[i + 3] == '=') + (s.p[i + 3] == '=' && s.p[i + 2] == '=') : 0;
        uint32_t v = 0;

        for (int k = 0; k < 4; k++) {
            int d = k >= 4 - pads ? 0 : base64_value(s.p[i + k]);
            if (d < 0) {
                return false;
            }
            v = v << 6 | (uint32_t)d;
        }
        for (int k = 0; k < 3 - pads; k++) {
            if (put == room) {
                return false;
            }
            to[put++] = (uint8_t)(v >> (16 - 8 * k));
        }
        if ((pads == 1 && (v & 0xff) != 0) || (pads == 2 && (v & 0xffff) != 0)) {
            return false; /* bits that no encoder writes */
        }
    }
    *n = put;
    return true;
}
