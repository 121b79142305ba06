import { readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { brotliCompressSync } from 'node:zlib'
import { defineConfig, type Plugin } from 'vite'

/** Compresses at build time instead of for every request. */
function compressAssets(): Plugin {
  let directory: string
  return {
    name: 'compress-assets',
    apply: 'build',
    configResolved({ build }) {
      directory = `${build.outDir}/assets`
    },
    closeBundle() {
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
    outDir: fileURLToPath(new URL('../dist/web', import.meta.url)),
    emptyOutDir: true,
    target: 'es2022',
    // Inline scripts and data URLs of scripts are refused by the Content-Security-Policy.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
  },
})
