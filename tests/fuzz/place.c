/* place.c - fuzzes the rows that say where content lies: the first byte is the length of the key.
 * What is read fits into its object, and the object's key is of its kind. */
#include "server/cluster/dead_list.h"
#include "server/cluster/place.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    struct slice rest = slice_of(p, n), key = slice_first(rest, 0);
    struct index_row row;
    struct place place;
    char text[CONTENT_KEY_ROOM];
    struct dead_object o;

    if (rest.n > 0 && (uint8_t)rest.p[0] < rest.n) {
        key = slice_of(rest.p + 1, (uint8_t)rest.p[0]);
        rest = slice_from(rest, 1 + key.n);
    }
    if (place_decode(key, rest, &place, NULL) == 0) {
        CHECK(content_fits(&place.item, &place.object));
        content_key(&place.object, text);
        CHECK(dead_object_parse(slice_str(text), &o) && o.nonce == place.object.nonce &&
              (unsigned)o.kind == (unsigned)place.object.kind);
    }
    if (index_decode(key, rest, &row, NULL) == 0) {
        CHECK(row.timeless == (rest.n == 0));
    }
    return 0;
}
