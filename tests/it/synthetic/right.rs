//! Pipelines that are right for some data of a certain form, each with such data: a trial with synthetic records must
//! not report them.

/// A pipeline from a file of lines to the log.
pub(super) struct Right {
    /// The data that the pipeline delivers.
    pub(super) of: &'static str,
    /// Lines of the file. No record of them fails.
    pub(super) lines: &'static str,
    /// The processors, as a list in YAML.
    pub(super) processors: &'static str,
}

pub(super) const RIGHT: &[Right] = &[
    Right {
        of: "CSV lines, taken apart by a script",
        lines: "7,ann,2024-05-06,2.50\n8,bob,2024-05-07,3.00\n",
        processors: r#"
- id: js
  plugin: custom.javascript
  settings:
    script: |
      function process(rec) {
        const [id, name, day, price] = new TextDecoder().decode(rec.Payload.After).split(",");
        rec.Payload.After = { id: parseInt(id, 10), name: name.toUpperCase(), day: new Date(day).toISOString(), price: Number(price).toFixed(1) };
        return rec;
      }
- { id: c, plugin: field.convert, settings: { field: .Payload.After.price, type: float } }
- { id: d, plugin: field.convert, settings: { field: .Payload.After.day, type: time } }
"#,
    },
    Right {
        of: "CSV lines with columns of fixed number, or the script throws",
        lines: "7;ann;EUR;2\n",
        processors: r#"
- id: js
  plugin: custom.javascript
  settings:
    script: |
      function process(rec) {
        const line = String.fromCharCode(...rec.Payload.After);
        const columns = line.split(";");
        if (columns.length !== 4) throw new Error(`expected 4 columns, got ${columns.length}`);
        if (!/^[A-Z]{3}$/.test(columns[2])) { throw new TypeError("no currency: " + columns[2]); }
        rec.Payload.After = Object.fromEntries(["id", "name", "currency", "n"].map((k, i) => [k, columns[i].trim()]));
        return rec;
      }
- { id: c, plugin: field.convert, settings: { field: .Payload.After.n, type: int } }
"#,
    },
    Right {
        of: "key=value lines with a key that is required",
        lines: "at=2024-05-06T07:08:09Z level=info dur=17ms user=ann\n",
        processors: r#"
- id: js
  plugin: custom.javascript
  settings:
    script: |
      const PAIR = /(\w+)=(\S+)/g;
      function process(rec) {
        const line = new TextDecoder().decode(rec.Payload.After);
        const fields = {};
        for (const [, key, value] of line.matchAll(PAIR)) fields[key] = value;
        fields.dur = parseInt(fields.dur.slice(0, -2), 10);
        rec.Payload.After = fields;
        return rec;
      }
- { id: t, plugin: field.convert, settings: { field: .Payload.After.at, type: time } }
- { id: f, plugin: filter, condition: '{{ lt .Payload.After.dur 3 }}' }
"#,
    },
    Right {
        of: "XML of a certain document",
        lines: "<order id=\"7\"><name>ann</name><total currency=\"EUR\">2.50</total></order>\n",
        processors: r#"
- id: js
  plugin: custom.javascript
  settings:
    script: |
      function process(rec) {
        const xml = new TextDecoder().decode(rec.Payload.After);
        const total = xml.match(/<total currency="([A-Z]+)">([^<]*)<\/total>/);
        rec.Payload.After = { id: xml.match(/id="(\d+)"/)[1], total: total[2], currency: total[1] };
        return rec;
      }
- { id: t, plugin: field.convert, settings: { field: .Payload.After.total, type: float } }
"#,
    },
    Right {
        of: "lines of syslog of a router",
        lines: "<134>1 2024-05-06T07:08:09.003Z gw-1 fw 4711 - - IN=eth0 SRC=10.0.0.7 DPT=443\n",
        processors: r#"
- id: js
  plugin: custom.javascript
  settings:
    script: |
      const LINE = /^<(\d+)>1 (\S+) (\S+) (\S+) (\S+) \S+ \S+ (.*)$/;
      function process(rec) {
        const found = LINE.exec(new TextDecoder().decode(rec.Payload.After));
        const [, priority, at, host, app, pid, rest] = found;
        const src = rest.match(/SRC=([0-9.]+)/)[1];
        rec.Payload.After = { severity: Number(priority) % 8, at, host, app, pid, src, port: rest.split("DPT=")[1].split(" ")[0] };
        rec.Metadata["host"] = host;
        return rec;
      }
- { id: p, plugin: field.convert, settings: { field: .Payload.After.port, type: int } }
- { id: n, plugin: field.set, settings: { field: .Payload.After.net, value: '{{ index (splitList "." .Payload.After.src) 3 }}' } }
"#,
    },
    Right {
        of: "a line that is a JSON list, split by a script",
        lines: "[{\"sku\":\"a\",\"n\":1},{\"sku\":\"b\",\"n\":2}]\n",
        processors: r#"
- { id: w, plugin: field.set, settings: { field: .Payload.After, value: '{"items": {{ printf "%s" .Payload.After }}}' } }
- { id: j, plugin: json.decode, settings: { field: .Payload.After } }
- { id: s, plugin: split, settings: { field: .Payload.After.items } }
- { id: x, plugin: field.set, settings: { field: .Payload.After.sku, value: '{{ upper .Payload.After.items.sku }}' } }
"#,
    },
    Right {
        of: "numbers as texts with a decimal comma",
        lines: "{\"price\":\"1.234,50\",\"n\":\"007\"}\n",
        processors: r#"
- { id: j, plugin: json.decode, settings: { field: .Payload.After } }
- { id: a, plugin: field.set, settings: { field: .Payload.After.price, value: '{{ .Payload.After.price | replace "." "" | replace "," "." }}' } }
- { id: b, plugin: field.convert, settings: { field: .Payload.After.price, type: float } }
- { id: c, plugin: field.set, settings: { field: .Payload.After.n, value: '{{ trimPrefix "00" .Payload.After.n }}' } }
- { id: d, plugin: field.convert, settings: { field: .Payload.After.n, type: int } }
"#,
    },
    Right {
        of: "an amount with its currency",
        lines: "{\"amount\":\"EUR 12.50\"}\n",
        processors: r#"
- { id: j, plugin: json.decode, settings: { field: .Payload.After } }
- { id: a, plugin: field.set, settings: { field: .Payload.After.value, value: '{{ index (splitList " " .Payload.After.amount) 1 }}' } }
- { id: b, plugin: field.convert, settings: { field: .Payload.After.value, type: float } }
- { id: c, plugin: field.set, settings: { field: .Payload.After.currency, value: '{{ substr 0 3 .Payload.After.amount }}' } }
"#,
    },
    Right {
        of: "dates in odd layouts",
        lines: "{\"day\":\"06.05.2024\",\"time\":\"7h08\",\"stamp\":\"20240506T070809\"}\n",
        processors: r#"
- { id: j, plugin: json.decode, settings: { field: .Payload.After } }
- { id: a, plugin: field.set, settings: { field: .Payload.After.day, value: '{{ (mustToDate "02.01.2006" .Payload.After.day).Format "2006-01-02T15:04:05Z07:00" }}' } }
- { id: b, plugin: field.convert, settings: { field: .Payload.After.day, type: time } }
- { id: c, plugin: field.set, settings: { field: .Payload.After.stamp, value: '{{ mustToDate "20060102T150405" .Payload.After.stamp | date "2006-01-02" }}' } }
- { id: d, plugin: field.set, settings: { field: .Payload.After.hour, value: '{{ index (splitList "h" .Payload.After.time) 0 }}' } }
- { id: e, plugin: field.convert, settings: { field: .Payload.After.hour, type: int } }
"#,
    },
    Right {
        of: "dates put together of parts",
        lines: "{\"y\":2024,\"m\":\"05\",\"d\":\"06\",\"at\":\"07:08:09\"}\n",
        processors: r#"
- { id: j, plugin: json.decode, settings: { field: .Payload.After } }
- { id: a, plugin: field.set, settings: { field: .Payload.After.t, value: '{{ .Payload.After.y }}-{{ .Payload.After.m }}-{{ .Payload.After.d }}T{{ .Payload.After.at }}Z' } }
- { id: b, plugin: field.convert, settings: { field: .Payload.After.t, type: time } }
"#,
    },
    Right {
        of: "nested fields of which some are optional",
        lines: "{\"user\":{\"address\":{\"geo\":{\"lat\":1.5}}},\"tags\":[\"a\",\"b\",\"c\"]}\n",
        processors: r#"
- { id: j, plugin: json.decode, settings: { field: .Payload.After } }
- { id: a, plugin: field.set, settings: { field: .Payload.After.lat, value: '{{ printf "%.3f" .Payload.After.user.address.geo.lat }}' } }
- { id: b, plugin: field.convert, settings: { field: .Payload.After.lat, type: float } }
- { id: c, plugin: field.set, settings: { field: .Payload.After.third, value: '{{ index .Payload.After.tags 2 }}' } }
- { id: d, plugin: field.set, settings: { field: .Payload.After.city, value: '{{ if hasKey .Payload.After "city" }}{{ .Payload.After.city.name }}{{ else }}none{{ end }}' } }
"#,
    },
    Right {
        of: "deeply nested fields in a script",
        lines: "{\"order\":{\"lines\":[{\"product\":{\"sizes\":{\"eu\":[38,39]}}}]}}\n",
        processors: r#"
- { id: j, plugin: json.decode, settings: { field: .Payload.After } }
- id: js
  plugin: custom.javascript
  settings:
    script: |
      function process(rec) {
        const { order: { lines: [first] } } = rec.Payload.After;
        rec.Payload.After.size = first.product.sizes.eu[1].toFixed(0);
        rec.Payload.After.shipping = rec.Payload.After.order.shipping?.method.toLowerCase() ?? "none";
        return rec;
      }
"#,
    },
    Right {
        of: "records that the script refuses unless they are good",
        lines: "{\"status\":\"paid\",\"email\":\"ann@example.org\",\"total\":12}\n",
        processors: r#"
- { id: j, plugin: json.decode, settings: { field: .Payload.After } }
- id: js
  plugin: custom.javascript
  settings:
    script: |
      const ALLOWED = new Set(["paid", "open"]);
      class Refused extends Error {}
      function check(ok, why) { if (!ok) throw new Refused(why); }
      function process(rec) {
        const { status, email, total } = rec.Payload.After;
        check(ALLOWED.has(status), "unknown status");
        check(typeof email === "string" && /^[^@]+@example\.org$/.test(email), "no address of ours");
        check(total > 10 && total % 12 === 0, "total");
        return rec;
      }
"#,
    },
    Right {
        of: "an object of errors that a script throws",
        lines: "{\"v\":3,\"kind\":\"z9\"}\n",
        processors: r#"
- { id: j, plugin: json.decode, settings: { field: .Payload.After } }
- id: js
  plugin: custom.javascript
  settings:
    script: |
      const messages = { kind: "kind must be z9" };
      function process(rec) {
        if (rec.Payload.After.kind !== "z" + 9) throw messages.kind;
        if (rec.Payload.After.v < 3) { const e = new Error(); e.message = messages.kind; throw e; }
        return rec;
      }
"#,
    },
    Right {
        of: "parts of a code with fixed places",
        lines: "{\"code\":\"AB/2024/07/0017\"}\n",
        processors: r#"
- { id: j, plugin: json.decode, settings: { field: .Payload.After } }
- { id: a, plugin: field.set, settings: { field: .Payload.After.year, value: '{{ index (splitList "/" .Payload.After.code) 1 }}' } }
- { id: b, plugin: field.set, settings: { field: .Payload.After.number, value: '{{ atoi (index (splitList "/" .Payload.After.code) 3) }}' } }
- { id: c, plugin: field.convert, settings: { field: .Payload.After.year, type: int } }
- { id: d, plugin: field.set, settings: { field: .Payload.After.tail, value: '{{ substr 11 15 .Payload.After.code }}' } }
"#,
    },
    Right {
        of: "a split with a limit, and keys of a map of parts",
        lines: "{\"path\":\"eu:west:1\"}\n",
        processors: r#"
- { id: j, plugin: json.decode, settings: { field: .Payload.After } }
- { id: a, plugin: field.set, settings: { field: .Payload.After.zone, value: '{{ (split ":" .Payload.After.path)._2 }}' } }
- { id: b, plugin: field.set, settings: { field: .Payload.After.region, value: '{{ index (splitn ":" 2 .Payload.After.path) "_1" }}' } }
- { id: c, plugin: field.convert, settings: { field: .Payload.After.zone, type: int } }
"#,
    },
    Right {
        of: "a field that holds JSON as text",
        lines: "{\"detail\":\"{\\\"a\\\":{\\\"b\\\":[1,2]}}\"}\n",
        processors: r#"
- { id: j, plugin: json.decode, settings: { field: .Payload.After } }
- { id: k, plugin: json.decode, settings: { field: .Payload.After.detail } }
- { id: s, plugin: split, settings: { field: .Payload.After.detail.a.b } }
- { id: c, plugin: field.convert, settings: { field: .Payload.After.detail.a.b, type: string } }
"#,
    },
    Right {
        of: "JSON in base64",
        lines: "{\"data\":\"eyJpZCI6IDd9\"}\n",
        processors: r#"
- { id: j, plugin: json.decode, settings: { field: .Payload.After } }
- { id: b, plugin: base64.decode, settings: { field: .Payload.After.data } }
- { id: k, plugin: json.decode, settings: { field: .Payload.After.data } }
- { id: t, plugin: field.set, settings: { field: .Payload.After.id, value: '{{ add .Payload.After.data.id 1 }}' } }
- { id: c, plugin: field.convert, settings: { field: .Payload.After.id, type: int } }
"#,
    },
    Right {
        of: "a token of three parts in base64 for URLs",
        lines: "{\"token\":\"eyJhIjoxfQ.eyJzdWIiOiJhbm4ifQ.c2ln\"}\n",
        processors: r#"
- { id: j, plugin: json.decode, settings: { field: .Payload.After } }
- id: js
  plugin: custom.javascript
  settings:
    script: |
      function process(rec) {
        const body = rec.Payload.After.token.split(".")[1].replaceAll("-", "+").replaceAll("_", "/");
        rec.Payload.After.subject = JSON.parse(atob(body)).sub.toUpperCase();
        return rec;
      }
- { id: t, plugin: field.set, settings: { field: .Payload.After.alg, value: '{{ (mustFromJson (b64dec (printf "%s==" (index (splitList "." .Payload.After.token) 0)))).a }}' } }
"#,
    },
    Right {
        of: "values that a script sets later, or sets anew",
        lines: "{\"at\":\"2024-05-06\",\"big\":\"17\",\"tags\":[\"b\",\"a\"]}\n",
        processors: r#"
- { id: j, plugin: json.decode, settings: { field: .Payload.After } }
- id: js
  plugin: custom.javascript
  settings:
    script: |
      let cache = null;
      function load() { cache ??= { rate: 2n }; return cache; }
      function process(rec) {
        const d = rec.Payload.After;
        let out;
        let last = null;
        for (last of d.tags) { out = out ?? []; out.push(last); }
        load();
        d.sum = String(BigInt(d.big) * cache.rate + 1n) + 1n;
        d.first = out.toSorted().at(0) + last.length;
        d.at = new Date(d.at);
        d.day = d.at.toISOString();
        rec.Metadata.note = null;
        delete rec.Metadata.note;
        rec.Metadata.empty = undefined;
        rec.Metadata.empty = "";
        return [rec].map(one => one);
      }
"#,
    },
    Right {
        of: "captures of a regular expression",
        lines: "{\"line\":\"[2024-05-06] E1234: disk full\"}\n",
        processors: r#"
- { id: j, plugin: json.decode, settings: { field: .Payload.After } }
- { id: a, plugin: field.set, settings: { field: .Payload.After.error, value: '{{ index (regexFindAll "E[0-9]{4}" .Payload.After.line -1) 0 }}' } }
- { id: b, plugin: field.set, settings: { field: .Payload.After.number, value: '{{ regexReplaceAll "^.*E([0-9]+).*$" .Payload.After.line "$${1}" }}' } }
- { id: c, plugin: field.convert, settings: { field: .Payload.After.number, type: int } }
- { id: d, plugin: field.set, settings: { field: .Payload.After.day, value: '{{ regexFind "[0-9]{4}-[0-9]{2}-[0-9]{2}" .Payload.After.line }}T00:00:00Z' } }
- { id: e, plugin: field.convert, settings: { field: .Payload.After.day, type: time } }
"#,
    },
    Right {
        of: "named groups of a regular expression in a script",
        lines: "{\"line\":\"GET /orders/17?full=1 200 12ms\"}\n",
        processors: r#"
- { id: j, plugin: json.decode, settings: { field: .Payload.After } }
- id: js
  plugin: custom.javascript
  settings:
    script: |
      function process(rec) {
        const { groups } = rec.Payload.After.line.match(/^(?<verb>[A-Z]+) (?<path>\S+) (?<status>\d{3}) (?<ms>\d+)ms$/);
        const [path, query] = groups.path.split("?");
        rec.Payload.After = { ...groups, path, full: query.includes("full=1"), id: path.match(/\d+/)[0] };
        return rec;
      }
- { id: c, plugin: field.convert, settings: { field: .Payload.After.ms, type: int } }
"#,
    },
    Right {
        of: "values of an enumeration",
        lines: "{\"size\":\"XL\",\"level\":\"warn\"}\n",
        processors: r#"
- { id: j, plugin: json.decode, settings: { field: .Payload.After } }
- { id: a, plugin: field.set, settings: { field: .Payload.After.rank, value: '{{ get (dict "S" "1" "M" "2" "XL" "4") .Payload.After.size }}' } }
- { id: b, plugin: field.convert, settings: { field: .Payload.After.rank, type: int } }
- { id: c, plugin: error, condition: '{{ not (has .Payload.After.level (list "info" "warn")) }}', settings: { message: 'no level: {{ .Payload.After.level }}' } }
"#,
    },
    Right {
        of: "values of an enumeration, by a table of a script",
        lines: "{\"size\":\"XL\"}\n",
        processors: r#"
- { id: j, plugin: json.decode, settings: { field: .Payload.After } }
- id: js
  plugin: custom.javascript
  settings:
    script: |
      const SIZES = { XL: { rank: 4, name: "extra large" }, XXL: { rank: 5, name: "huge" } };
      function process(rec) {
        const size = SIZES[rec.Payload.After.size];
        rec.Payload.After.size_name = size.name.toUpperCase();
        rec.Payload.After.rank = SIZES[rec.Payload.After.size].rank.toString();
        return rec;
      }
"#,
    },
    Right {
        of: "a field that is an object in JSON, read by a template",
        lines: "{\"settings\":\"{\\\"depth\\\": 3, \\\"names\\\": [\\\"x\\\"]}\"}\n",
        processors: r#"
- { id: j, plugin: json.decode, settings: { field: .Payload.After } }
- { id: a, plugin: field.set, settings: { field: .Payload.After.depth, value: '{{ (mustFromJson .Payload.After.settings).depth }}' } }
- { id: b, plugin: field.convert, settings: { field: .Payload.After.depth, type: float } }
- { id: c, plugin: field.set, settings: { field: .Payload.After.first, value: '{{ first (fromJson .Payload.After.settings).names }}' } }
"#,
    },
    Right {
        of: "semantic versions",
        lines: "{\"version\":\"2.3.1-rc.1\"}\n",
        processors: r#"
- { id: j, plugin: json.decode, settings: { field: .Payload.After } }
- { id: f, plugin: filter, condition: '{{ semverCompare "<1.0.0" .Payload.After.version }}' }
- { id: a, plugin: field.set, settings: { field: .Payload.After.major, value: '{{ (semver .Payload.After.version).Major }}' } }
- { id: b, plugin: field.convert, settings: { field: .Payload.After.major, type: int } }
"#,
    },
    Right {
        of: "URLs",
        lines: "{\"url\":\"https://example.org:8443/a/b?id=17#top\"}\n",
        processors: r#"
- { id: j, plugin: json.decode, settings: { field: .Payload.After } }
- { id: a, plugin: field.set, settings: { field: .Payload.After.host, value: '{{ (urlParse .Payload.After.url).hostname }}' } }
- { id: b, plugin: field.set, settings: { field: .Payload.After.id, value: '{{ (urlParse .Payload.After.url).query | trimPrefix "id=" }}' } }
- { id: c, plugin: field.convert, settings: { field: .Payload.After.id, type: int } }
- { id: d, plugin: field.set, settings: { field: .Payload.After.port, value: '{{ index (splitList ":" (urlParse .Payload.After.url).host) 1 }}' } }
"#,
    },
    Right {
        of: "URLs, decoded by a script",
        lines: "{\"url\":\"https://example.org/a%20b?q=%C3%BC\"}\n",
        processors: r#"
- { id: j, plugin: json.decode, settings: { field: .Payload.After } }
- id: js
  plugin: custom.javascript
  settings:
    script: |
      function process(rec) {
        const [, host, path] = rec.Payload.After.url.match(/^https:\/\/([^/]+)(\/[^?]*)/);
        rec.Payload.After.host = host;
        rec.Payload.After.path = decodeURIComponent(path);
        rec.Payload.After.q = decodeURIComponent(rec.Payload.After.url.split("?q=")[1]);
        return rec;
      }
"#,
    },
    Right {
        of: "durations as texts",
        lines: "{\"took\":\"1h30m\",\"wait\":\"250ms\"}\n",
        processors: r#"
- { id: j, plugin: json.decode, settings: { field: .Payload.After } }
- { id: a, plugin: field.set, settings: { field: .Payload.After.ms, value: '{{ .Payload.After.wait | trimSuffix "ms" }}' } }
- { id: b, plugin: field.convert, settings: { field: .Payload.After.ms, type: int } }
- { id: c, plugin: field.set, settings: { field: .Payload.After.hours, value: '{{ index (splitList "h" .Payload.After.took) 0 }}' } }
- { id: d, plugin: field.convert, settings: { field: .Payload.After.hours, type: int } }
"#,
    },
    Right {
        of: "conditions that only some records meet",
        lines: "{\"kind\":\"refund\",\"refund\":{\"amount\":\"12\"}}\n{\"kind\":\"order\"}\n",
        processors: r#"
- { id: j, plugin: json.decode, settings: { field: .Payload.After } }
- { id: a, plugin: field.convert, condition: '{{ eq .Payload.After.kind "refund" }}', settings: { field: .Payload.After.refund.amount, type: int } }
- { id: b, plugin: field.set, condition: '{{ eq .Payload.After.kind "refund" }}', settings: { field: .Payload.After.big, value: '{{ gt .Payload.After.refund.amount 10 }}' } }
- { id: c, plugin: field.convert, condition: '{{ eq .Payload.After.kind "refund" }}', settings: { field: .Payload.After.big, type: bool } }
"#,
    },
    Right {
        of: "a condition which compares a field of one type",
        lines: "{\"n\":3,\"at\":1714979289,\"tags\":[\"a\"]}\n",
        processors: r#"
- { id: j, plugin: json.decode, settings: { field: .Payload.After } }
- { id: f, plugin: filter, condition: '{{ and (gt .Payload.After.n 5) (lt .Payload.After.at 1714979000) }}' }
- { id: g, plugin: filter, condition: '{{ eq (len .Payload.After.tags) 3 }}' }
- { id: h, plugin: filter, condition: '{{ ge (index .Payload.After.tags 0) "m" }}' }
"#,
    },
    Right {
        of: "metadata that another pipeline or processor sets",
        lines: "{\"id\":1,\"tenant\":\"t-17\"}\n",
        processors: r#"
- { id: j, plugin: json.decode, settings: { field: .Payload.After } }
- { id: m, plugin: field.set, settings: { field: .Metadata.tenant, value: '{{ .Payload.After.tenant }}' } }
- { id: a, plugin: field.set, settings: { field: .Payload.After.number, value: '{{ index (splitList "-" (index .Metadata "tenant")) 1 }}' } }
- { id: b, plugin: field.convert, settings: { field: .Payload.After.number, type: int } }
- id: js
  plugin: custom.javascript
  settings:
    script: |
      function process(rec) {
        rec.Metadata.shard = String(Number(rec.Metadata.tenant.split("-")[1]) % 4);
        return rec;
      }
"#,
    },
    Right {
        of: "a key made of fields",
        lines: "{\"region\":\"eu\",\"number\":7}\n",
        processors: r#"
- { id: j, plugin: json.decode, settings: { field: .Payload.After } }
- { id: k, plugin: field.set, settings: { field: .Key, value: '{"id": "{{ .Payload.After.region }}-{{ .Payload.After.number }}"}' } }
- { id: d, plugin: json.decode, settings: { field: .Key } }
- { id: n, plugin: field.set, settings: { field: .Payload.After.shard, value: '{{ index (splitList "-" .Key.id) 1 }}' } }
"#,
    },
    Right {
        of: "a field with JSON that is put together",
        lines: "{\"lat\":1.5,\"lon\":2,\"name\":\"x\"}\n",
        processors: r#"
- { id: j, plugin: json.decode, settings: { field: .Payload.After } }
- { id: p, plugin: field.set, settings: { field: .Payload.After.point, value: '[{{ .Payload.After.lat }}, {{ .Payload.After.lon }}]' } }
- { id: d, plugin: json.decode, settings: { field: .Payload.After.point } }
- { id: o, plugin: field.set, settings: { field: .Payload.After.o, value: '{"n": {"v": {{ .Payload.After.lat }}, "s": "{{ .Payload.After.name }}"}}' } }
- { id: e, plugin: json.decode, settings: { field: .Payload.After.o } }
- { id: c, plugin: field.convert, settings: { field: .Payload.After.o.n.v, type: float } }
- { id: s, plugin: split, settings: { field: .Payload.After.point } }
"#,
    },
    Right {
        of: "a list in text, split by commas into JSON",
        lines: "{\"tags\":\"a,b\"}\n",
        processors: r#"
- { id: j, plugin: json.decode, settings: { field: .Payload.After } }
- { id: t, plugin: field.set, settings: { field: .Payload.After.tags, value: '{{ splitList "," .Payload.After.tags | toJson }}' } }
- { id: d, plugin: json.decode, settings: { field: .Payload.After.tags } }
- { id: s, plugin: split, settings: { field: .Payload.After.tags } }
"#,
    },
    Right {
        of: "flags as texts",
        lines: "{\"flag\":\"TRUE\",\"on\":\"1\"}\n",
        processors: r#"
- { id: j, plugin: json.decode, settings: { field: .Payload.After } }
- { id: a, plugin: field.set, settings: { field: .Payload.After.flag, value: '{{ lower .Payload.After.flag }}' } }
- { id: b, plugin: field.convert, settings: { field: .Payload.After.flag, type: bool } }
- { id: c, plugin: field.convert, settings: { field: .Payload.After.on, type: bool } }
"#,
    },
    Right {
        of: "numbers in hexadecimal and with signs",
        lines: "{\"hex\":\"ff\",\"amount\":\"12-\"}\n",
        processors: r#"
- { id: j, plugin: json.decode, settings: { field: .Payload.After } }
- id: js
  plugin: custom.javascript
  settings:
    script: |
      function process(rec) {
        rec.Payload.After.hex = BigInt("0x" + rec.Payload.After.hex).toString();
        const [, digits, sign] = /^(\d+)([-+])$/.exec(rec.Payload.After.amount);
        rec.Payload.After.amount = sign + digits;
        return rec;
      }
- { id: a, plugin: field.convert, settings: { field: .Payload.After.hex, type: int } }
- { id: b, plugin: field.convert, settings: { field: .Payload.After.amount, type: int } }
"#,
    },
    Right {
        of: "a change of Debezium, unwrapped behind a decoder",
        lines: "{\"payload\":{\"op\":\"c\",\"ts_ms\":1,\"before\":null,\"after\":{\"id\":7,\"price\":\"1.5\"},\"source\":{\"table\":\"t\"}}}\n",
        processors: r#"
- { id: j, plugin: json.decode, settings: { field: .Payload.After } }
- { id: u, plugin: unwrap.debezium, settings: { field: .Payload.After } }
- { id: c, plugin: field.convert, settings: { field: .Payload.After.price, type: float } }
- { id: k, plugin: field.set, settings: { field: .Key, value: '{"id": {{ .Payload.After.id }}}' } }
"#,
    },
    Right {
        of: "an envelope of a service, whose data are a text",
        lines: "{\"Records\":[{\"body\":\"{\\\"id\\\":7}\"}]}\n",
        processors: r#"
- { id: j, plugin: json.decode, settings: { field: .Payload.After } }
- { id: s, plugin: split, settings: { field: .Payload.After.Records } }
- { id: d, plugin: json.decode, settings: { field: .Payload.After.Records.body } }
- { id: t, plugin: field.set, settings: { field: .Payload.After, value: '{{ toJson .Payload.After.Records.body }}' } }
- { id: e, plugin: json.decode, settings: { field: .Payload.After } }
- { id: f, plugin: filter, condition: '{{ gt .Payload.After.id 10 }}' }
"#,
    },
    Right {
        of: "a list whose elements have fields of certain types",
        lines: "{\"items\":[{\"sku\":\"a\",\"price\":1.5,\"qty\":2}]}\n",
        processors: r#"
- { id: j, plugin: json.decode, settings: { field: .Payload.After } }
- { id: t, plugin: field.set, settings: { field: .Payload.After.total, value: '{{ $sum := 0.0 }}{{ range .Payload.After.items }}{{ $sum = addf $sum (mulf .price .qty) }}{{ end }}{{ $sum }}' } }
- { id: c, plugin: field.convert, settings: { field: .Payload.After.total, type: float } }
- id: js
  plugin: custom.javascript
  settings:
    script: |
      function process(rec) {
        const cheapest = rec.Payload.After.items.sort((a, b) => a.price - b.price)[0];
        rec.Payload.After.best = cheapest.sku.toUpperCase();
        rec.Payload.After.sum = rec.Payload.After.items.reduce((sum, i) => sum + i.price * i.qty, 0).toFixed(2);
        return rec;
      }
"#,
    },
    Right {
        of: "BigInt and dates in a script",
        lines: "{\"id\":9007199254740993,\"at\":\"2024-05-06T07:08:09Z\"}\n",
        processors: r#"
- { id: j, plugin: json.decode, settings: { field: .Payload.After } }
- { id: t, plugin: field.convert, settings: { field: .Payload.After.at, type: time } }
- id: js
  plugin: custom.javascript
  settings:
    script: |
      function process(rec) {
        rec.Payload.After.shard = Number(rec.Payload.After.id % 16n);
        rec.Payload.After.year = rec.Payload.After.at.getUTCFullYear();
        return rec;
      }
"#,
    },
    Right {
        of: "a processor that always throws on purpose, behind a condition",
        lines: "{\"ok\":true}\n",
        processors: r#"
- { id: j, plugin: json.decode, settings: { field: .Payload.After } }
- { id: e, plugin: error, condition: '{{ ne .Payload.After.ok true }}', settings: { message: 'not ok' } }
- { id: t, plugin: field.set, settings: { field: .Payload.After.t, value: '{{ if not .Payload.After.ok }}{{ fail "not ok" }}{{ end }}x' } }
"#,
    },
    Right {
        of: "a field that is required",
        lines: "{\"tenant\":\"t1\"}\n",
        processors: r#"
- { id: j, plugin: json.decode, settings: { field: .Payload.After } }
- { id: r, plugin: field.set, settings: { field: .Payload.After.r, value: '{{ if ne .Payload.After.tenant "t1" }}{{ fail "another tenant" }}{{ end }}' } }
- { id: c, plugin: field.set, settings: { field: .Payload.After.n, value: '{{ trimPrefix "t" .Payload.After.tenant }}' } }
- { id: d, plugin: field.convert, settings: { field: .Payload.After.n, type: int } }
"#,
    },
    Right {
        of: "text of a form that repeats",
        lines: "{\"route\":\"A>B>C\",\"pairs\":\"a:1;b:2\"}\n",
        processors: r#"
- { id: j, plugin: json.decode, settings: { field: .Payload.After } }
- { id: a, plugin: field.set, settings: { field: .Payload.After.last, value: '{{ last (splitList ">" .Payload.After.route) }}' } }
- { id: b, plugin: field.set, settings: { field: .Payload.After.second, value: '{{ index (splitList ":" (index (splitList ";" .Payload.After.pairs) 1)) 1 }}' } }
- { id: c, plugin: field.convert, settings: { field: .Payload.After.second, type: int } }
"#,
    },
    Right {
        of: "a name of fields that the record holds itself",
        lines: "{\"field\":\"price\",\"price\":\"3\"}\n",
        processors: r#"
- { id: j, plugin: json.decode, settings: { field: .Payload.After } }
- { id: a, plugin: field.set, settings: { field: .Payload.After.value, value: '{{ index .Payload.After .Payload.After.field }}' } }
- { id: b, plugin: field.convert, settings: { field: .Payload.After.value, type: int } }
- id: js
  plugin: custom.javascript
  settings:
    script: |
      function process(rec) {
        const name = rec.Payload.After.field;
        rec.Payload.After.other = rec.Payload.After[name].padStart(5, "0");
        return rec;
      }
"#,
    },
    Right {
        of: "an escaped text, unquoted",
        lines: "{\"text\":\"\\\"a\\\\nb\\\"\"}\n",
        processors: r#"
- { id: j, plugin: json.decode, settings: { field: .Payload.After } }
- { id: d, plugin: json.decode, settings: { field: .Payload.After.text } }
- { id: t, plugin: field.set, settings: { field: .Payload.After.lines, value: '{{ index (splitList "\n" .Payload.After.text) 1 }}' } }
"#,
    },
    Right {
        of: "coordinates in one text",
        lines: "{\"geo\":\"POINT(1.5 2.5)\"}\n",
        processors: r#"
- { id: j, plugin: json.decode, settings: { field: .Payload.After } }
- { id: t, plugin: field.set, settings: { field: .Payload.After.x, value: '{{ index (splitList " " (.Payload.After.geo | trimPrefix "POINT(" | trimSuffix ")")) 0 }}' } }
- { id: c, plugin: field.convert, settings: { field: .Payload.After.x, type: float } }
- id: js
  plugin: custom.javascript
  settings:
    script: |
      function process(rec) {
        const inner = rec.Payload.After.geo.match(/\(([^)]+)\)/)[1];
        const [x, y] = inner.split(" ").map(Number);
        if (Number.isNaN(y)) throw new RangeError("not a point");
        rec.Payload.After.y = y.toFixed(1);
        return rec;
      }
"#,
    },
    Right {
        of: "an object in JSON whose fields a script looks up by names of its own",
        lines: "{\"rows\":{\"r1\":{\"v\":1},\"r2\":{\"v\":2}}}\n",
        processors: r#"
- { id: j, plugin: json.decode, settings: { field: .Payload.After } }
- id: js
  plugin: custom.javascript
  settings:
    script: |
      const rows = ["r1", "r2"];
      function process(rec) {
        rec.Payload.After.sum = rows.map(row => rec.Payload.After.rows[row].v).reduce((a, b) => a + b).toFixed(0);
        for (const row of rows) delete rec.Payload.After.rows[row].v.x;
        return rec;
      }
"#,
    },
    Right {
        of: "a list of pairs",
        lines: "{\"pairs\":[[\"a\",1],[\"b\",2]],\"points\":[[1,2],[3,4]]}\n",
        processors: r#"
- { id: j, plugin: json.decode, settings: { field: .Payload.After } }
- id: js
  plugin: custom.javascript
  settings:
    script: |
      function process(rec) {
        const byName = new Map(rec.Payload.After.pairs);
        rec.Payload.After.b = byName.get("b").toFixed(1);
        return rec;
      }
- { id: s, plugin: split, settings: { field: .Payload.After.points } }
- { id: t, plugin: field.set, settings: { field: .Payload.After.x, value: '{{ first .Payload.After.points }}' } }
"#,
    },
    Right {
        of: "lists that are longer than usual",
        lines: "{\"columns\":[\"a\",\"b\",\"c\",\"d\",\"e\",\"f\",\"g\",\"h\",\"i\"]}\n",
        processors: r#"
- { id: j, plugin: json.decode, settings: { field: .Payload.After } }
- { id: t, plugin: field.set, settings: { field: .Payload.After.x, value: '{{ upper (index .Payload.After.columns 8) }}' } }
- id: js
  plugin: custom.javascript
  settings:
    script: |
      function process(rec) {
        const columns = rec.Payload.After.columns;
        rec.Payload.After.last = columns[8].toUpperCase();
        return rec;
      }
"#,
    },
    Right {
        of: "a number of a certain form, or the value is no number",
        lines: "{\"weight\":\"12kg\",\"count\":\"3 pcs\"}\n",
        processors: r#"
- { id: j, plugin: json.decode, settings: { field: .Payload.After } }
- id: js
  plugin: custom.javascript
  settings:
    script: |
      function process(rec) {
        rec.Payload.After.kg = Number(rec.Payload.After.weight.replace("kg", ""));
        let unit = null;
        if (rec.Payload.After.count.endsWith(" pcs")) unit = "piece";
        rec.Payload.After.unit = unit.toUpperCase();
        return rec;
      }
- { id: c, plugin: field.convert, settings: { field: .Payload.After.unit, type: string } }
"#,
    },
    Right {
        of: "the result of a table, which the next step converts",
        lines: "{\"plan\":\"pro-2024\"}\n",
        processors: r#"
- { id: j, plugin: json.decode, settings: { field: .Payload.After } }
- id: js
  plugin: custom.javascript
  settings:
    script: |
      function process(rec) {
        const seats = { "pro-2024": "25", "free-2024": "1" };
        rec.Payload.After.seats = seats[rec.Payload.After.plan];
        return rec;
      }
- { id: c, plugin: field.convert, settings: { field: .Payload.After.seats, type: int } }
- { id: f, plugin: filter, condition: '{{ gt .Payload.After.seats 100 }}' }
"#,
    },
    Right {
        of: "metadata of a table of a script",
        lines: "{\"code\":\"q7\"}\n",
        processors: r#"
- { id: j, plugin: json.decode, settings: { field: .Payload.After } }
- id: js
  plugin: custom.javascript
  settings:
    script: |
      const NAMES = { q7: "queue 7" };
      function process(rec) {
        rec.Metadata.name = NAMES[rec.Payload.After.code];
        return rec;
      }
"#,
    },
    Right {
        of: "objects and maps of a script over several lines",
        lines: "{\"a7\":1.5,\"pairs\":[[\"k7\",\"v\"]]}\n",
        processors: r#"
- { id: j, plugin: json.decode, settings: { field: .Payload.After } }
- id: js
  plugin: custom.javascript
  settings:
    script: |
      function process(rec) {
        const all = {
          ...rec.Payload.After,
        };
        const pairs = new Map(
          rec.Payload.After.pairs
        );
        const name = "a" + 7;
        rec.Payload.After.x = all[name].toFixed(2);
        rec.Payload.After.y = pairs.get("k7").toUpperCase();
        return rec;
      }
"#,
    },
    Right {
        of: "keys of an object that are numbers",
        lines: "{\"temperatures\":{\"7\":1.5,\"10\":2.5}}\n",
        processors: r#"
- { id: j, plugin: json.decode, settings: { field: .Payload.After } }
- id: js
  plugin: custom.javascript
  settings:
    script: |
      function process(rec) {
        const hours = Object.keys(rec.Payload.After.temperatures).map(Number).sort((a, b) => a - b);
        rec.Payload.After.first = rec.Payload.After.temperatures[hours[0]].toFixed(1);
        rec.Payload.After.text = JSON.stringify(rec.Payload.After.temperatures);
        return rec;
      }
"#,
    },
];

/// Processors behind `json.decode` of lines, into a table of postgres. The lines
/// `{"id": 1, "items": [{"sku": "a"}, {"sku": "b"}]}` are rows of it.
pub(super) const ROWS_OF_TABLES: &[&str] = &[
    r#"
- { id: split, plugin: split, settings: { field: .Payload.After.items } }
- { id: key, plugin: field.set, settings: { field: .Key, value: '{"o": {{ .Payload.After.id }}, "n": {{ index .Metadata "split.index" }}}' } }
"#,
    r#"
- { id: split, plugin: split, settings: { field: .Payload.After.items } }
- { id: key, plugin: field.set, settings: { field: .Key, value: '{"o": {{ .Payload.After.id }}, "n": {{ int (index .Metadata "split.index") }}}' } }
"#,
    r#"
- { id: split, plugin: split, settings: { field: .Payload.After.items } }
- { id: key, plugin: field.set, settings: { field: .Key, value: '{"o": {{ toJson .Payload.After.id }}, "n": {{ index .Metadata "split.index" }}}' } }
"#,
    r#"
- { id: split, plugin: split, settings: { field: .Payload.After.items } }
- id: key
  plugin: custom.javascript
  settings:
    script: |
      function process(rec) {
        rec.Key = { o: rec.Payload.After.id, n: rec.Metadata["split.index"] };
        return rec;
      }
"#,
];
