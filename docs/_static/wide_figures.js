// On a phone, figures of several panels keep a size at which their text can be read, and scroll.
document.addEventListener("DOMContentLoaded", () => {
  for (const figure of document.querySelectorAll(".bd-article img:not(.left-half, .right-half)")) {
    const mark = () => {
      if (figure.naturalWidth > 700 && figure.naturalWidth > 1.7 * figure.naturalHeight) {
        const box = document.createElement("div");
        box.className = "wide-figure";
        box.tabIndex = 0;
        figure.replaceWith(box);
        box.append(figure);
      }
    };
    if (figure.closest(".sphx-glr-thumbcontainer, .wide-figure")) continue;
    if (figure.complete) mark();
    else figure.addEventListener("load", mark, { once: true });
  }
});
