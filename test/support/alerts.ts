import { readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'

export const RULES_FILE = fileURLToPath(new URL('../../deploy/alerts.yaml', import.meta.url))

/** The alerts of deploy/alerts.yaml. `fieldOf` returns the value of a key that fits on one line. */
export const ALERTS = readFileSync(RULES_FILE, 'utf8')
  .split(/^ {6}- alert: /m)
  .slice(1)
  .map((text) => {
    const fieldOf = (key: string) => new RegExp(`^ +${key}: (.+)$`, 'm').exec(text)?.[1]
    return { name: text.split('\n')[0] ?? '', fieldOf }
  })
