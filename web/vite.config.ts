import { readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { brotliCompressSync } from 'node:zlib'
import { defineConfig, type Plugin } from 'vite'

const OUTPUT = fileURLToPath(new URL('../dist/web', import.meta.url))

/** Compresses at build time instead of for every request. */
function compressAssets(): Plugin {
  return {
    name: 'compress-assets',
    apply: 'build',
    closeBundle() {
      const directory = `${OUTPUT}/assets`
      for (const name of readdirSync(directory).filter((file) => /\.(js|css|svg)$/.test(file))) {
        writeFileSync(`${directory}/${name}.br`, brotliCompressSync(readFileSync(`${directory}/${name}`)))
      }
    },
  }
}

export default defineConfig({
  root: fileURLToPath(new URL('.', import.meta.url)),
  base: '/',
  logLevel: 'warn',
  plugins: [compressAssets()],
  build: {
    outDir: OUTPUT,
    emptyOutDir: true,
    target: 'es2022',
    // Inline scripts and data URLs of scripts are refused by the Content-Security-Policy.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
  },
})
