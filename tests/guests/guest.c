/* A processor in C, as people write them without one of the SDKs: with a C library (WASI), so that its start, its
   memory and its output are those of a compiler. It marks records in their metadata; a payload of text that begins with
   "drop" is filtered, with "bad" an error, with "twice" two records, and with "crash" the end of the guest. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HOST(name) __attribute__((import_module("conduit"), import_name(name)))
HOST("command_request") extern uint32_t command_request(void *at, uint32_t length);
HOST("command_response") extern uint32_t command_response(const void *at, uint32_t length);

enum { NO_MORE_COMMANDS = 0xFFFFFFFE, ERRORS = 0xFFFFFF9B };
static const char COOKIE[] = "3stnegqd0x02axggy0vrc4izjeq2zik6g7somyb3ye4vy5iivvjm5s1edppl5oja";

typedef struct {
  const uint8_t *at, *end;
} Bytes;

/* What is written; it grows. */
typedef struct {
  uint8_t *at;
  size_t length, room;
} Out;

static void stop(const char *why) {
  fprintf(stderr, "guest.c: %s\n", why);
  exit(1);
}

static void put(Out *out, const void *bytes, size_t length) {
  if (out->length + length > out->room) {
    out->room = 2 * (out->length + length);
    out->at = realloc(out->at, out->room);
    if (!out->at) stop("no memory");
  }
  if (length) memcpy(out->at + out->length, bytes, length);
  out->length += length;
}

static void put_number(Out *out, uint64_t value) {
  uint8_t byte;
  for (; value >= 0x80; value >>= 7) {
    byte = (uint8_t)value | 0x80;
    put(out, &byte, 1);
  }
  byte = (uint8_t)value;
  put(out, &byte, 1);
}

static void put_field(Out *out, uint32_t number, const void *bytes, size_t length) {
  put_number(out, number << 3 | 2);
  put_number(out, length);
  put(out, bytes, length);
}

static void put_text(Out *out, uint32_t number, const char *text) { put_field(out, number, text, strlen(text)); }

/* Puts a message that is complete into another, and begins anew with it. */
static void put_message(Out *out, uint32_t number, Out *message) {
  put_field(out, number, message->at, message->length);
  message->length = 0;
}

static uint64_t number(Bytes *in) {
  uint64_t value = 0;
  for (int shift = 0; in->at < in->end && shift < 64; shift += 7) {
    uint8_t byte = *in->at++;
    value |= (uint64_t)(byte & 0x7F) << shift;
    if (byte < 0x80) return value;
  }
  stop("a number is cut off");
  return 0;
}

/* The next field; its content where it has a length. */
static uint32_t field(Bytes *in, Bytes *content) {
  uint64_t tag = number(in);
  switch (tag & 7) {
    case 0: *content = (Bytes){in->at, in->at}; number(in); break;
    case 2: {
      uint64_t length = number(in);
      if (length > (uint64_t)(in->end - in->at)) stop("a field is cut off");
      *content = (Bytes){in->at, in->at + length};
      in->at += length;
      break;
    }
    default: stop("a field of another kind");
  }
  return (uint32_t)(tag >> 3);
}

/* The last field of a number, empty where there is none. */
static Bytes inside(Bytes in, uint32_t wanted) {
  Bytes found = {0}, content;
  while (in.at < in.end)
    if (field(&in, &content) == wanted) found = content;
  return found;
}

static int begins(Bytes text, const char *with) {
  size_t length = strlen(with);
  return (size_t)(text.end - text.at) >= length && memcmp(text.at, with, length) == 0;
}

static char mark[64] = "yes";

static void configure(Bytes request) {
  Bytes entry;
  while (request.at < request.end)
    if (field(&request, &entry) == 1 && begins(inside(entry, 1), "mark")) {
      Bytes value = inside(entry, 2);
      snprintf(mark, sizeof mark, "%.*s", (int)(value.end - value.at), (const char *)value.at);
    }
}

/* A record with one more entry in its metadata. */
static void marked(Out *record, Bytes given, const char *value) {
  static Out entry;
  put(record, given.at, (size_t)(given.end - given.at));
  put_text(&entry, 1, "c.mark");
  put_text(&entry, 2, value);
  put_message(record, 3, &entry);
}

static void process(Bytes request, Out *results) {
  static Out record, part, result;
  Bytes given;
  while (request.at < request.end) {
    if (field(&request, &given) != 1) continue;
    Bytes text = inside(inside(inside(given, 5), 2), 1); /* payload, after, raw */
    if (begins(text, "crash")) {
      printf("a crash was asked for\n");
      exit(7);
    } else if (begins(text, "drop")) {
      put_field(&result, 2, "", 0);
    } else if (begins(text, "bad")) {
      put_text(&part, 2, "the guest in C refuses this");
      put_message(&record, 1, &part);
      put_message(&result, 3, &record);
    } else if (begins(text, "twice")) {
      marked(&record, given, "first");
      put_message(&part, 1, &record);
      marked(&record, given, "second");
      put_message(&part, 1, &record);
      put_message(&result, 4, &part);
    } else {
      marked(&record, given, mark);
      put_message(&result, 1, &record);
    }
    put_message(results, 1, &result);
  }
}

static void specify(Out *answer) {
  static Out parameter, entry;
  put_text(answer, 1, "test.c");
  put_text(answer, 2, "Marks records.");
  put_text(answer, 4, "v1.2.3");
  put_text(answer, 5, "somebody");
  put_text(&parameter, 1, "yes");
  put_text(&parameter, 2, "What to mark records with.");
  put_number(&parameter, 3 << 3);
  put_number(&parameter, 1);
  put_text(&entry, 1, "mark");
  put_message(&entry, 2, &parameter);
  put_message(answer, 6, &entry);
}

int main(void) {
  const char *cookie = getenv("CONDUIT_MAGIC_COOKIE");
  if (!cookie || strcmp(cookie, COOKIE) != 0) stop("this is a processor: a program that knows how starts it");
  setvbuf(stdout, NULL, _IOLBF, 0);
  uint32_t room = 16;
  uint8_t *command = malloc(room);
  Out answer = {0}, response = {0};
  for (;;) {
    uint32_t length = command_request(command, room);
    if (length == NO_MORE_COMMANDS) return 0;
    if (length >= ERRORS) stop("the host failed");
    if (length > room) {
      command = realloc(command, room = length);
      if (!command) stop("no memory");
      continue;
    }
    Bytes in = {command, command + length}, request;
    uint32_t kind = field(&in, &request);
    switch (kind) {
      case 1: specify(&answer); break;
      case 2: configure(request); break;
      case 3:
        printf("{\"level\":\"warn\",\"message\":\"opened\",\"as\":\"%s\"}\n", getenv("CONDUIT_PROCESSOR_ID"));
        break;
      case 4: process(request, &answer); break;
      case 5: break;
      default: stop("a command of another kind");
    }
    put_message(&response, kind + 1, &answer);
    if (command_response(response.at, (uint32_t)response.length) != 0) stop("the host did not take the answer");
    response.length = 0;
  }
}
