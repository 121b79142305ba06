/** Finds sections that contain every word, those with a word in their heading first. */
const SHOWN = 20
const CONTEXT = 60

const root = document.body.dataset.root
const input = document.querySelector('input[type=search]')
const found = document.querySelector('#found')

input.addEventListener('input', () => {
  const words = input.value.toLowerCase().split(/\s+/).filter(Boolean)
  const matches =
    words.length === 0 ? [] : globalThis.INDEX.map((entry) => ({ entry, score: scoreOf(entry, words) }))
  const best = matches.filter(({ score }) => score > 0).sort((a, b) => b.score - a.score)
  found.replaceChildren(...best.slice(0, SHOWN).map(({ entry }) => itemOf(entry, words[0])))
})

function scoreOf({ title, heading, text }, words) {
  const [inTitle, inHeading, inText] = [title, heading, text].map((part) => part.toLowerCase())
  const scores = words.map(
    (word) =>
      (inHeading.includes(word) ? 4 : 0) + (inTitle.includes(word) ? 2 : 0) + (inText.includes(word) ? 1 : 0),
  )
  return scores.includes(0) ? 0 : scores.reduce((sum, score) => sum + score)
}

function itemOf({ page, title, heading, text }, word) {
  const link = document.createElement('a')
  link.href = `${root}/${page}`
  link.textContent = heading === title ? title : `${title}: ${heading}`
  const at = Math.max(0, text.toLowerCase().indexOf(word) - CONTEXT)
  const context = document.createElement('small')
  context.textContent = text.slice(at, at + 2 * CONTEXT)
  const item = document.createElement('li')
  item.append(link, context)
  return item
}
