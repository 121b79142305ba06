/** When the sources were last changed. */
import { readdirSync, statSync } from 'node:fs'
import { fileURLToPath } from 'node:url'

export const pathOf = (name) => fileURLToPath(new URL(`../${name}`, import.meta.url))

/** Milliseconds since 1970. A directory changes when one of its files is deleted. */
export function modifiedMs(...names) {
  const times = names.map((name) => {
    const found = statSync(pathOf(name))
    const below = found.isDirectory() ? readdirSync(pathOf(name)).map((each) => `${name}/${each}`) : []
    return Math.max(found.mtimeMs, below.length > 0 ? modifiedMs(...below) : 0)
  })
  return Math.max(...times)
}
