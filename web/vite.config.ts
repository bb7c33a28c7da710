import { gzipSync } from "node:zlib";
import { defineConfig, type Plugin } from "vite";

const MOST_BYTES = 60_000;

/** A page that loads in a moment stays so: all scripts together, packed. */
const small: Plugin = {
  name: "small",
  generateBundle(_, bundle) {
    const scripts = Object.values(bundle).filter((file) => file.fileName.endsWith(".js"));
    const packed = scripts.map(
      (file) => gzipSync(file.type === "chunk" ? file.code : file.source).length,
    );
    const bytes = packed.reduce((sum, each) => sum + each, 0);
    if (bytes > MOST_BYTES)
      this.error(`the scripts have ${bytes} bytes packed, more than ${MOST_BYTES}`);
  },
};

// `make web-dev` serves the sources beside a running service.
const service = process.env.GENLOCK_URL ?? "http://127.0.0.1:8420";
const proxy = Object.fromEntries(
  ["/v1", "/projects", "/sign-in", "/sign-out", "/status", "/favicon.svg"].map((path) => [
    path,
    service,
  ]),
);

export default defineConfig({
  plugins: [small],
  build: {
    outDir: "../src/genlock/service/web/built",
    emptyOutDir: true,
    target: "es2022",
    assetsInlineLimit: 0,
    cssCodeSplit: false,
    modulePreload: { polyfill: false },
    reportCompressedSize: true,
  },
  worker: { format: "es" },
  server: { proxy },
});
