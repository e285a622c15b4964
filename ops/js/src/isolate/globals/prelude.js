// Globals based on a few native functions. Takes the built-ins that it uses before a script can change them.
(function (log, enabled, encode, decode, uuid, random) {
  "use strict";
  const { stringify } = JSON;
  const text = String;
  const Bytes = Uint8Array;
  const define = (name, value) =>
    Object.defineProperty(globalThis, name, { value, writable: true, configurable: true, enumerable: false });

  const plain = (_, value) => {
    if (typeof value === "bigint") return text(value);
    return value instanceof Bytes ? decode(value) : value;
  };
  const show = (value) => {
    if (typeof value === "string") return value;
    if (value instanceof Bytes) return decode(value);
    if (typeof value !== "object" || value === null || value instanceof Error) return text(value);
    try {
      return stringify(value, plain) ?? text(value);
    } catch {
      return text(value);
    }
  };
  const line = (level, values) => {
    if (!enabled(level)) return;
    let out = "";
    for (let i = 0; i < values.length; i++) out += (i ? " " : "") + show(values[i]);
    log(level, out);
  };

  // `logger.info("text")`, and the builder of the reference: `logger.Info().Str("key", "value").Msg("text")`.
  class Event {
    #level;
    #fields = "";
    constructor(level) {
      this.#level = level;
    }
    #with(key, value) {
      if (enabled(this.#level)) this.#fields += ` ${show(key)}=${show(value)}`;
      return this;
    }
    Str(key, value) { return this.#with(key, value); }
    Int(key, value) { return this.#with(key, value); }
    Float64(key, value) { return this.#with(key, value); }
    Bool(key, value) { return this.#with(key, value); }
    Any(key, value) { return this.#with(key, value); }
    Interface(key, value) { return this.#with(key, value); }
    Bytes(key, value) { return this.#with(key, value); }
    Err(error) { return this.#with("error", error); }
    Msg(message) { line(this.#level, [show(message) + this.#fields]); }
    Msgf(format, ...values) {
      let next = 0;
      this.Msg(show(format).replace(/%[a-z%]/g, (verb) => (verb === "%%" ? "%" : show(values[next++]))));
    }
    Send() { this.Msg(""); }
  }
  const LEVELS = ["Trace", "Debug", "Info", "Warn", "Error"];
  const logger = {};
  LEVELS.forEach((name, level) => {
    logger[name] = () => new Event(level);
    logger[name.toLowerCase()] = (...values) => line(level, values);
  });
  define("logger", logger);
  define("console", {
    trace: logger.trace,
    debug: logger.debug,
    log: logger.info,
    info: logger.info,
    warn: logger.warn,
    error: logger.error,
    assert: (holds, ...values) => holds || line(4, ["assertion failed:", ...values]),
  });

  define("crypto", {
    randomUUID: () => uuid(),
    getRandomValues(array) {
      if (!ArrayBuffer.isView(array)) throw new TypeError("getRandomValues fills a typed array");
      if (array.byteLength > 65536) throw new RangeError("getRandomValues fills at most 65536 bytes");
      new Bytes(array.buffer, array.byteOffset, array.byteLength).set(random(array.byteLength));
      return array;
    },
  });

  define("TextEncoder", class TextEncoder {
    get encoding() { return "utf-8"; }
    encode(value = "") { return encode(value); }
  });
  define("TextDecoder", class TextDecoder {
    #fatal;
    constructor(label = "utf-8", { fatal = false } = {}) {
      if (!/^\s*utf-?8\s*$/i.test(label)) throw new RangeError(`TextDecoder supports only utf-8, not ${label}`);
      this.#fatal = fatal;
    }
    get encoding() { return "utf-8"; }
    get fatal() { return this.#fatal; }
    decode(bytes) { return decode(bytes, this.#fatal); }
  });
})
