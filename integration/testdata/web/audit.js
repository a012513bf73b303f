// What makes the page hard to use, as a list of sentences: text without
// contrast, fields without a label, controls without a name or too small to
// hit, a page or a table that has to be scrolled sideways.
(() => {
  const faults = [];
  const show = (element) => element.outerHTML.replace(/\s+/g, ' ').slice(0, 120);

  const parse = (color) => {
    const [r, g, b, a = 1] = color.match(/[\d.]+/g).map(Number);
    return { r, g, b, a };
  };
  const over = (top, under) => {
    const mix = (x, y) => x * top.a + y * (1 - top.a);
    return { r: mix(top.r, under.r), g: mix(top.g, under.g), b: mix(top.b, under.b), a: 1 };
  };
  const ground = (element) => {
    if (!element) return { r: 255, g: 255, b: 255, a: 1 };
    const color = parse(getComputedStyle(element).backgroundColor);
    return color.a === 1 ? color : over(color, ground(element.parentElement));
  };
  const luminance = ({ r, g, b }) => {
    const linear = [r, g, b].map((c) => {
      const part = c / 255;
      return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
  };
  const contrast = (element, property = 'color') => {
    const under = ground(element);
    const [light, dark] = [luminance(over(parse(getComputedStyle(element)[property]), under)), luminance(under)].sort((x, y) => y - x);
    return (light + 0.05) / (dark + 0.05);
  };
  const visible = (element) => element.checkVisibility({ opacityProperty: true, visibilityProperty: true }) && element.getClientRects().length > 0;

  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const seen = new Set();
  while (texts.nextNode()) {
    const element = texts.currentNode.parentElement;
    if (!texts.currentNode.textContent.trim() || seen.has(element) || !visible(element)) continue;
    seen.add(element);
    const ratio = contrast(element);
    if (ratio < 4.5) faults.push(`contrast ${ratio.toFixed(2)}: ${show(element)}`);
  }

  for (const field of document.querySelectorAll('input:not([type=hidden]):not([hidden])')) {
    if (!field.labels?.length) faults.push(`no label: ${show(field)}`);
    const border = contrast(field, 'borderTopColor');
    if (visible(field) && border < 3) faults.push(`border ${border.toFixed(2)}: ${show(field)}`);
  }
  for (const control of document.querySelectorAll('a, button, summary')) {
    if (!control.textContent.trim() && !control.getAttribute('aria-label')) faults.push(`no name: ${show(control)}`);
    const box = control.getBoundingClientRect();
    if (control.tagName === 'BUTTON' && visible(control) && box.height < 24) faults.push(`${box.height} high: ${show(control)}`);
  }
  const ids = [...document.querySelectorAll('[id]')].map((element) => element.id);
  for (const id of ids) if (ids.indexOf(id) !== ids.lastIndexOf(id)) faults.push(`twice the id ${id}`);
  for (const element of document.querySelectorAll('[aria-labelledby], [aria-describedby]')) {
    for (const attribute of ['aria-labelledby', 'aria-describedby']) {
      for (const id of (element.getAttribute(attribute) ?? '').split(' ').filter(Boolean)) {
        if (!ids.includes(id)) faults.push(`nothing has the id ${id} of ${show(element)}`);
      }
    }
  }
  for (const element of document.querySelectorAll('[style], script:not([src]), style')) faults.push(`inline: ${show(element)}`);

  if (document.querySelectorAll('h1').length !== 1) faults.push('not one h1');
  if (!document.title || document.documentElement.lang !== 'en') faults.push('no title or language');
  const sideways = document.documentElement.scrollWidth - document.documentElement.clientWidth;
  if (sideways > 0) faults.push(`scrolls sideways by ${sideways}`);
  for (const box of document.querySelectorAll('.scroll')) {
    if (box.scrollWidth > box.clientWidth) faults.push(`${box.scrollWidth} wide in ${box.clientWidth}: ${show(box)}`);
  }
  return faults;
})()
