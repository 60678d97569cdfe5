/* jsonline.h - reads the text of one line of a .jsonl file: the string member of a given name in
 * the line's object.
 *
 * Of a repeated name the last one counts. Escapes are decoded; bytes that are not UTF-8 stay as
 * they are.
 *
 * errors   E_CORRUPT: not one JSON object, or without such a string
 */
#ifndef AGENT_TRAIN_JSONLINE_H
#define AGENT_TRAIN_JSONLINE_H

#include "common/base/buf.h"

/* Replaces what `out` holds. */
MUST_USE int jsonline_text(struct slice line, struct slice field, struct buf *out, struct err *e);

#endif
