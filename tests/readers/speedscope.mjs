// Opens files with speedscope's own importer, and prints what it made of them.
//
//     node speedscope.mjs FOLDER-OF-SPEEDSCOPE FILE…

import { readdirSync, readFileSync } from "node:fs";
import { basename, join } from "node:path";
import { createContext, runInContext } from "node:vm";

const [folder, ...files] = process.argv.slice(2);
const release = join(folder, "dist/release");
const bundle = readdirSync(release).find((name) => /^speedscope-\w+\.js$/.test(name));

// The bundle is a whole page and hands out nothing: the function that opens a text is asked to show
// itself where it is defined.
const importer =
  /async function (\w+)\((\w+),(\w+)\)\{return\(await \w+\)\.importProfileGroupFromText\(\2,\3\)\}/;
const code = readFileSync(join(release, bundle), "utf8");
if (!importer.test(code)) throw new Error(`no importer in ${bundle}`);

const scope = createContext({
  console: { log() {}, warn: console.error, error: console.error },
  location: { hash: "" },
  TextDecoder,
  TextEncoder,
  setTimeout,
});
scope.window = scope.self = scope;
try {
  runInContext(code.replace(importer, (text, name) => `${text};self.open=${name};`), scope);
} catch {
  // There is no page to draw on.
}

const opened = [];
for (const file of files) {
  const group = await scope.open(basename(file), readFileSync(file, "utf8"));
  opened.push(
    group.profiles.map((profile) => {
      const frames = [];
      profile.forEachFrame((frame) => frames.push(frame.name));
      return {
        name: profile.getName(),
        unit: profile.getWeightUnit(),
        weight: profile.getTotalWeight(),
        frames,
      };
    }),
  );
}
console.log(JSON.stringify(opened));
